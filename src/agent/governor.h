/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the agent cheap: measures what each tracker costs, in the kernel and here, and thins out
 * the events of those that cost more than their share of the host's CPU, so that rows' weights keep
 * all sums right (struct sampling, include/events/event.h). Steps back when it is quiet again.
 *
 * In the kernel: the run time that the kernel itself keeps of BPF programs, which costs 20-40 ns a
 * run while it does; so it is asked to for a tenth of a second in each interval. A uprobe's trap is
 * not in it and is added. Here: the CPU time of turning events into rows and of sending them,
 * divided by rows. What gil_wait and off_cpu do in one program counts as off_cpu's where it runs.
 */
#ifndef UNDERSPAN_GOVERNOR_H
#define UNDERSPAN_GOVERNOR_H

#include "config.h"
#include "trackers/trackers.h"

/* Since the start; the kernel's are estimated from the samples. */
struct governor_cost {
	uint64_t bpf_ns, bpf_hits, agent_ns;
};

struct governor_tracker {
	struct governor_cost cost;
	struct sampling sampling;
	uint64_t rows;	     /* as of the last interval */
	uint64_t bpf_rate;   /* ns a second, of the last interval */
	uint64_t agent_rate; /* the same */
	unsigned int over;   /* intervals in a row in which it cost too much */
	unsigned int quiet;  /* in which it would have been cheap enough with a step back, too */
	bool at_end;	     /* costs too much, and nothing is left to turn down: was said */
	uint64_t begin_ns;   /* run time and hits when the sample began */
	uint64_t begin_hits;
};

struct governor {
	struct tracker_set *set;
	/* the trackers, then finding processes */
	struct governor_tracker items[MAX_TRACKERS + 1];
	uint64_t interval_start_ns, sample_start_ns;
	int stats_fd;	  /* while a sample is taken */
	bool unmeasured;  /* the kernel does not let us */
	uint64_t work_ns; /* CPU time of the collector with events and rows, in the interval */
	uint64_t work_begin_ns, process_begin_ns;
	/* CPU times at the interval's start: all, the collector's, the readers' that find processes
	 */
	uint64_t process_ns, thread_ns, finding_ns;
};

extern const struct option_table governor_options;

bool governor_is_on(void);

void governor_start(struct governor *governor, struct tracker_set *set);

/* Around what is done for rows' sake. Collector thread. */
void governor_work_begins(struct governor *governor);
void governor_work_ends(struct governor *governor);

/* `rows`: so far, of each tracker. Often; does something when the time has come. */
void governor_tick(struct governor *governor, const uint64_t *rows, uint64_t now_ns);

/* Before the programs go. */
void governor_stop(struct governor *governor);

#endif
