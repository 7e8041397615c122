/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two tables in which the agent speaks of itself: ebpf_agent (what it counted, per tracker
 * and interval) and ebpf_probe_health (what is probed in which process, how, or why not). With
 * them "no row" can be told from "no event".
 */
#ifndef UNDERSPAN_AGENT_TABLES_H
#define UNDERSPAN_AGENT_TABLES_H

#include "agent/counts.h"
#include "pipeline/column.h"

/* Counts are of the interval start..end; pending and queued_rows are at its end. */
struct agent_row {
	const char *host;
	const char *version;
	const char *tracker;	   /* or what else it is about, see counts.h */
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
	struct agent_counts counts;
};

struct probe_health_row {
	const char *host;
	const char *container_id;
	const char *pod_uid;
	uint32_t host_pid;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	const char *tracker;
	uint8_t live;
	const char *method;
	const char *python_version;
	const char *binary;
	const char *build_id;
	const char *reason; /* why not live */
};

extern const struct table agent_table;
extern const struct table probe_health_table;

#endif
