/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent counts, in one list: the columns of ebpf_agent, the metrics, the log and doctor
 * all walk it. A subject is a tracker, a table of sums, discovery ("processes") or the agent's own
 * tables ("agent"). Of each subject, at any time:
 *
 *	seen = filtered + sampled + lost_ring + lost_state + bad_event + rows + pending
 *	rows + recovered = inserted + dropped_memory + dropped_spool + dropped_corrupt +
 *			   dropped_refused + queued_rows
 *
 * `pending` is the rest: decided about in the kernel and no row yet. When the agent has stopped,
 * nothing is, so that a rest would be an error; it is said so.
 */
#ifndef UNDERSPAN_AGENT_COUNTS_H
#define UNDERSPAN_AGENT_COUNTS_H

#include "agent/governor.h"
#include "pipeline/pipeline.h"
#include "trackers/trackers.h"

/* X(name, is a gauge, is a loss, what it is) */
#define AGENT_COUNTS(X)                                                                            \
	X(seen, false, false, "occurrences that were decided about")                               \
	X(filtered, false, false, "no row wanted: below a threshold, not tracked")                 \
	X(sampled, false, false, "left out by the governor, others' weights stand for them")       \
	X(lost_ring, false, true, "lost: the ring buffer was full")                                \
	X(lost_state, false, true, "lost: a map in the kernel was full")                           \
	X(bad_event, false, true, "lost: unreadable records")                                      \
	X(rows, false, false, "became rows")                                                       \
	X(pending, true, false, "not read yet, or waiting for a name")                             \
	X(read_fail, false, false, "parts that rows went without; of these Python stacks:")        \
	X(stack_late, false, false, "it was over before a moment to take it came")                 \
	X(stack_state, false, false, "the thread's state in Python was not found")                 \
	X(stack_moved, false, false, "the thread ran on while it was looked at")                   \
	X(stack_room, false, false, "a map in the kernel was full")                                \
	X(stack_share, false, false, "stacks had cost the process their share of time already")    \
	X(rows_gone, false, false, "rows with <gone>: code that died before it was read")          \
	X(rows_unread, false, false, "rows with <unread>: code or symbols not read in time")       \
	X(rows_unnamed, false, false, "rows with a thread of Python whose name is not known")      \
	X(recovered, false, false, "rows of earlier runs, found in the spool")                     \
	X(inserted, false, false, "rows in the database")                                          \
	X(dropped_memory, false, true, "rows dropped for want of memory")                          \
	X(dropped_spool, false, true, "rows dropped: the spool is full, or they are too old")      \
	X(dropped_corrupt, false, true, "rows in spool files that are torn or corrupt")            \
	X(dropped_refused, false, true, "rows that the database will never take")                  \
	X(lost_crash, false, true, "rows lost with the memory of a run that was killed")           \
	X(queued_rows, true, false, "rows that wait to be sent")                                   \
	X(spooled_rows, true, false, "of these in the spool")                                      \
	X(retries, false, false, "batches sent once more")                                         \
	X(bytes_sent, false, false, "bytes of acknowledged batches")                               \
	X(bpf_ns, false, false, "run time of its BPF programs, estimated from samples")            \
	X(bpf_hits, false, false, "runs of its BPF programs, likewise")                            \
	X(agent_ns, false, false, "CPU time of the agent for it")                                  \
	X(sampling_level, true, false, "events below 1 ms << level are thinned out; 0: none")      \
	X(skip_shift, true, false, "one in 1 << shift is looked at")

struct agent_counts {
#define X(name, gauge, loss, what) uint64_t name;
	AGENT_COUNTS(X)
#undef X
};

struct agent_count {
	const char *name;
	size_t offset;
	bool gauge; /* as it is now; the others have grown since the start */
	bool loss;
	const char *what;
};

enum {
#define X(name, gauge, loss, what) +1
	N_AGENT_COUNTS = 0 AGENT_COUNTS(X),
#undef X
	MAX_SUBJECTS = 2 * MAX_TRACKERS + 2,
};
extern const struct agent_count agent_count_list[N_AGENT_COUNTS];

static inline uint64_t agent_count_of(const struct agent_counts *counts, size_t i)
{
	return *(const uint64_t *)((const char *)counts + agent_count_list[i].offset);
}

struct subject {
	const char *name;
	const struct running_tracker *running; /* a tracker; NULL: something else */
	bool discovery;
	size_t tables[2]; /* the pipeline's, with its rows */
	size_t n_tables;
};

struct subjects {
	struct tracker_set *set;
	const struct governor *governor;
	struct pipeline *pipeline;
	struct subject items[MAX_SUBJECTS];
	size_t n;
};

/* `own_tables`: the pipeline's first of the agent's own two. */
void subjects_list(struct subjects *subjects, struct tracker_set *set,
		   const struct governor *governor, struct pipeline *pipeline, size_t own_tables);

/* Reads what was counted since the start. Collector thread only. */
void subjects_read(const struct subjects *subjects, size_t index, struct agent_counts *ret);

/* `now` minus `before`; gauges stay as they are now. */
void agent_counts_since(const struct agent_counts *now, const struct agent_counts *before,
			struct agent_counts *ret);

/* "3 lost: the ring buffer was full, 2 rows dropped for want of memory"; '' when nothing is. */
const char *agent_counts_losses(const struct agent_counts *counts, char *buf, size_t size);
/* The same of rows that went without a name. */
const char *agent_counts_lacking(const struct agent_counts *counts, char *buf, size_t size);

#endif
