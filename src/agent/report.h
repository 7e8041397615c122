/* SPDX-License-Identifier: Apache-2.0 */
/* Rows about the agent: ebpf_agent per interval, ebpf_probe_health per process. */
#ifndef UNDERSPAN_AGENT_REPORT_H
#define UNDERSPAN_AGENT_REPORT_H

#include "agent/agent_tables.h"
#include "agent/subjects.h"
#include "process/processes.h"
#include "trackers/trackers.h"

struct report {
	struct tracker_set *set;
	struct pipeline *pipeline;
	size_t agent_table, health_table; /* handles */
	uint64_t interval_ns;
	uint64_t since_ns;
	uint64_t logged_ns; /* time of the last log message about losses */
	struct subjects subjects;
	uint64_t out_since_ns[MAX_TRACKERS]; /* as reported, see report_outages() */
	struct agent_counts last[MAX_SUBJECTS], logged[MAX_SUBJECTS];
};

void report_start(struct report *report, struct tracker_set *set, const struct rows *rows,
		  const struct governor *governor, struct pipeline *pipeline, uint64_t interval_ns);

/* Adds a health row per requested tracker: running on this host or not (host_pid 0). */
void report_trackers(struct report *report);

/* Writes the interval's rows at its end; logs losses once a minute. */
void report_tick(struct report *report, uint64_t now_ns);

/*
 * Trackers were taken out or put back: health rows, and reports up to now. A tracker that is out
 * has no report: a gap in ebpf_agent is time that was not measured.
 */
void report_outages(struct report *report, uint64_t now_ns);

/* To be called after all producers have stopped: writes the last rows and logs counters that do not
 * add up. */
void report_last(struct report *report, uint64_t now_ns);

/* A health row without process: host_pid 0. */
void report_health(struct report *report, const char *tracker, const struct tracker_health *health);

/* Logs steps of the wall clock and suspends since the last call. */
void report_clock(struct report *report);

/* A new process: a health row per tracker concerned. */
/* Method to read the interpreter's state, and whether the state was valid. */
void report_python(struct report *report, const struct process *process);
void report_process(struct report *report, const struct process *process);

#endif
