// SPDX-License-Identifier: Apache-2.0
/* How busy the host is. See host_load.h. */
#include "agent/host_load.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"

struct totals {
	uint64_t switches, packets;
};

static bool read_totals(struct totals *ret)
{
	AUTO_FCLOSE FILE *f = fopen("/proc/stat", "re");
	static char line[1 << 16]; /* "intr" has a number per interrupt */

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "ctxt ", 5))
			sscanf(line, "ctxt %" SCNu64, &ret->switches);
		else if (!strncmp(line, "softirq ", 8)) /* all, HI, TIMER, NET_TX, NET_RX */
			sscanf(line, "softirq %*u %*u %*u %*u %" SCNu64, &ret->packets);
	}
	return f != NULL;
}

void host_load_read(struct host_load *load, uint64_t now_ns)
{
	struct totals t = { load->switches, load->packets };
	double seconds = (double)(now_ns - load->at_ns) / 1e9;

	if (!read_totals(&t))
		return;
	if (load->at_ns && seconds > 0) {
		load->switch_rate = (double)(t.switches - load->switches) / seconds;
		load->packet_rate = (double)(t.packets - load->packets) / seconds;
	}
	load->at_ns = now_ns;
	load->switches = t.switches;
	load->packets = t.packets;
}

static double ratio(double now, double then)
{
	return then > 1 ? now / then : 1;
}

double host_load_ratio(const struct host_load *now, const struct host_load *then)
{
	double switches = ratio(now->switch_rate, then->switch_rate);
	double packets = ratio(now->packet_rate, then->packet_rate);

	return switches > packets ? switches : packets;
}
