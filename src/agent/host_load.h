/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the host is, by counters of /proc/stat that do not depend on the agent's programs. */
#ifndef UNDERSPAN_AGENT_HOST_LOAD_H
#define UNDERSPAN_AGENT_HOST_LOAD_H

#include <stdint.h>

/* Totals since the boot, in the kernel's units; and the rates since the last call, per second. */
struct host_load {
	uint64_t at_ns, switches, packets;
	double switch_rate, packet_rate;
};

/* Rates stay as they were if /proc/stat cannot be read. */
void host_load_read(struct host_load *load, uint64_t now_ns);

/*
 * How much of the load `then` is there `now`: 1 as much, 0 none. The larger one of context switches
 * and received packets.
 */
double host_load_ratio(const struct host_load *now, const struct host_load *then);

#endif
