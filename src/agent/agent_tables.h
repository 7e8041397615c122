/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables about the agent: ebpf_agent (counters per tracker and interval) and ebpf_probe_health
 * (probes per process: method, or reason of absence). They distinguish "no row" from "no event".
 */
#ifndef UNDERSPAN_AGENT_AGENT_TABLES_H
#define UNDERSPAN_AGENT_AGENT_TABLES_H

#include "agent/counts.h"
#include "rows/column.h"
#include "trackers/trackers.h"

/* Counters of the interval start..end; pending and queued_rows: values at its end. */
struct agent_row {
	const char *host;
	const char *version;
	const char *tracker;	   /* or another subject, see counts.h */
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
	struct agent_counts counts;
	struct column_maybe_u64 bpf_ns, bpf_hits, agent_ns; /* in the place of those of counts */
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

/*
 * Lists all tables of the pipeline: the trackers' first and second tables, the agent's two. Returns
 * the number.
 */
enum { AGENT_TABLES_MAX = 2 * MAX_TRACKERS + 2 };
size_t agent_tables_list(const struct tracker_set *set, const struct table *ret[AGENT_TABLES_MAX]);

#endif
