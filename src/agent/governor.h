/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits the agent's CPU use: measures each tracker's cost in the kernel and in user space, and
 * samples the events of trackers above their share of the host's CPU; row weights keep sums right
 * (struct sampling, include/events/event.h). Reduces sampling when the load falls. Where sampling
 * does not help, takes trackers out (trackers/take_out.h) and puts them back when the load falls.
 * Samples also what would be too many rows for the database (row_limit.h).
 *
 * Kernel: BPF run-time statistics, enabled for 0.1 s per interval since they cost 20-40 ns per run;
 * the trap of uprobes is not included and is added. User space: CPU time to make and send rows,
 * divided by rows. Work shared by trackers in a program counts for one of them (program_owner.c).
 */
#ifndef UNDERSPAN_AGENT_GOVERNOR_H
#define UNDERSPAN_AGENT_GOVERNOR_H

#include "base/config.h"
#include "agent/host_load.h"
#include "agent/row_limit.h"
#include "agent/skip_cost.h"
#include "trackers/trackers.h"

/* What the governor knows about trackers taken out, see shedding.c. */
struct shedding {
	const struct string_list *first; /* the option shed_first */
	size_t order[MAX_TRACKERS];	 /* trackers that are out; the last one comes back first */
	size_t n;
	unsigned int over, quiet; /* consecutive intervals */
	double before;		  /* percent of the host's CPU expected without the last one */
	double expected;	  /* the same with those just put back; 0: no change */
	bool measure_saving;
	struct host_load load, load_then; /* now, and when the last one was taken out */
	uint64_t out_ns, back_ns;	  /* the last changes */
	uint64_t trial_after_ns;	  /* put back without a smaller load, to see */
};

/* Since the start; kernel values are extrapolated from samples. */
struct governor_cost {
	uint64_t bpf_ns, bpf_hits, agent_ns;
};

struct governor_tracker {
	struct governor_cost cost;
	struct sampling sampling; /* for the limits on CPU */
	struct row_limit row_limit;
	struct skip_cost skip_cost;
	uint64_t rows;	     /* at the last interval */
	uint64_t bpf_rate;   /* ns per second in the last interval */
	uint64_t agent_rate; /* ns per second in the last interval */
	unsigned int over;   /* consecutive intervals over the limit */
	unsigned int
		quiet; /* consecutive intervals that would be under the limit with less sampling */
	bool at_end;   /* over the limit with no further step; logged */
	double saved;  /* by taking the tracker out: percent of the host's CPU, then */
	uint64_t begin_ns; /* run time and hits at the start of the sample */
	uint64_t begin_hits;
};

struct governor {
	struct tracker_set *set;
	/* trackers, then discovery */
	struct governor_tracker items[MAX_TRACKERS + 1];
	uint64_t interval_start_ns, sample_start_ns;
	uint64_t retry_ns; /* option */
	uint64_t pace_ns;  /* length of the present interval: shorter while the limit is exceeded */
	struct shedding shedding;
	int stats_fd;		 /* open during a sample */
	bool unmeasured;	 /* statistics not permitted */
	bool has_bpf, has_agent; /* costs in the kernel and of the agent were measured once */
	uint64_t work_ns;	 /* collector's CPU time for events and rows in the interval */
	uint64_t work_begin_ns, process_begin_ns;
	/* CPU times at the interval's start: process, collector, discovery readers */
	uint64_t process_ns, thread_ns, finding_ns;
};

extern const struct option_table governor_options;

bool governor_is_on(void);

/* `first`: the trackers to take out first. */
void governor_start(struct governor *governor, struct tracker_set *set,
		    const struct string_list *first);

/* Bracket work for rows. Collector thread only. */
void governor_work_begins(struct governor *governor);
void governor_work_ends(struct governor *governor);

/*
 * `rows`: total rows per tracker. To be called often; acts at the end of an interval. Returns
 * whether trackers were taken out or put back (running_tracker.out_since_ns).
 */
bool governor_tick(struct governor *governor, const uint64_t *rows, uint64_t now_ns);

/* ---- shedding.c ---- */

/*
 * Costs in the kernel, in percent of the host's CPU, with the governor's limit on the sum. The
 * agent's own part follows the rows, and so the sampling.
 */
struct governor_costs {
	double all; /* trackers */
	double limit;
	double of[MAX_TRACKERS];
};

/* Takes trackers out, or puts one back. Returns whether that happened. */
bool shedding_adjust(struct governor *governor, const struct governor_costs *costs,
		     uint64_t now_ns);

/* To be called before the programs are destroyed. */
void governor_stop(struct governor *governor);

#endif
