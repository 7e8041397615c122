/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the agent, from the command line and the configuration. */
#ifndef UNDERSPAN_AGENT_OPTIONS_H
#define UNDERSPAN_AGENT_OPTIONS_H

#include "base/config.h"
#include "base/util.h"
#include "pipeline/limits.h"

struct agent_options {
	struct string_list trackers; /* empty: all */
	struct pid_list pids;	     /* empty: every Python process of the host */
	uint64_t duration_ns;	     /* 0: until a signal */
	uint64_t report_interval_ns; /* interval of ebpf_agent rows */
	uint64_t health_interval_ns; /* interval to repeat ebpf_probe_health rows; 0: never */
	const char *host;	     /* NULL: the machine's name */
	bool ends_in_time; /* after a signal, also if the main thread does not come back */
	struct pipeline_limits limits;
	/*
	 * SIGHUP: reads the configuration again, also into these options; 0, or -errno with why and
	 * nothing changed. NULL: SIGHUP is ignored.
	 */
	int (*reload)(struct agent_options *options, struct why *why);
};

#endif
