/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's loop: waits for ring buffers, jobs, signals and the clock; runs the work due
 * every 100 ms and every second.
 */
#ifndef UNDERSPAN_AGENT_LOOP_H
#define UNDERSPAN_AGENT_LOOP_H

#include "agent/agent_tables.h"
#include "agent/governor.h"
#include "agent/options.h"
#include "agent/report.h"
#include "agent/event_rows.h"
#include "trackers/trackers.h"

struct agent {
	struct agent_options options;
	struct tracker_set set;
	bool set_open;
	struct pipeline *pipeline;
	const struct table *tables[AGENT_TABLES_MAX]; /* the pipeline's */
	size_t n_tables;
	struct rows rows;
	struct report report;
	struct governor governor;
	bool started, stop, watch_fd_ended;
	bool probes_left;	 /* their removal is held up by the kernel */
	int signal_fd, clock_fd; /* of the loop */
	bool ready;
	uint64_t end_ns; /* 0: none */
	uint64_t processes_lost, rescan_next_ns;
	uint64_t health_reported_ns;  /* 0: never */
	uint64_t memory_back_next_ns; /* 0: not scheduled */
};

/* Until a signal, the end of the duration, an error, or `watch_fd` is readable. */
int agent_loop(struct agent *agent, int watch_fd, struct why *why);

/* The trackers' own rows and health; `last`: the agent stops. */
void agent_tick_trackers(struct agent *agent, uint64_t now, bool last);

#endif
