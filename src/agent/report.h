/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's rows about itself: fills ebpf_agent each interval, ebpf_probe_health per process. */
#ifndef UNDERSPAN_REPORT_H
#define UNDERSPAN_REPORT_H

#include "agent/agent_tables.h"
#include "agent/counts.h"
#include "probe/processes.h"
#include "trackers/trackers.h"

struct report {
	struct tracker_set *set;
	struct pipeline *pipeline;
	uint64_t interval_ns;
	uint64_t since_ns;
	uint64_t logged_ns; /* when the log was last told of losses */
	struct subjects subjects;
	struct agent_counts last[MAX_SUBJECTS], logged[MAX_SUBJECTS];
};

void report_start(struct report *report, struct tracker_set *set, const struct governor *governor,
		  struct pipeline *pipeline, uint64_t interval_ns);

/* Says of each tracker that was wanted whether it runs on this host (rows with host_pid 0). */
void report_trackers(struct report *report);

/* Writes the interval's rows when it is over; once a minute the log is told what was lost. */
void report_tick(struct report *report, uint64_t now_ns);

/* When all producers are gone: writes the rest, and says where counts do not add up. */
void report_last(struct report *report, uint64_t now_ns);

/* A row about something that is no process: host_pid 0. */
void report_health(struct report *report, const char *tracker, const struct tracker_health *health);

/* Says when the wall clock was stepped, or the host suspended, since it was last asked. */
void report_clock(struct report *report);

/* A process appeared: a row per tracker that has something to say about it. */
/* How its interpreter's state is read, and whether it was there. */
void report_python(struct report *report, const struct process *process);
void report_process(struct report *report, const struct process *process);

#endif
