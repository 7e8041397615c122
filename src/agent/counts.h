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

enum agent_count_kind {
	COUNT_PLAIN,
	COUNT_LOSS,  /* an event or a row that will never be in the database */
	COUNT_LACK,  /* a row that is there, but went without a name */
	COUNT_GAUGE, /* as it is now; the others have grown since the start */
};

/* X(name, kind, what it is) */
#define AGENT_COUNTS(X)                                                                            \
	X(seen, COUNT_PLAIN, "occurrences that were decided about")                                \
	X(filtered, COUNT_PLAIN, "no row wanted: below a threshold, not tracked")                  \
	X(sampled, COUNT_PLAIN, "left out by the governor, others' weights stand for them")        \
	X(lost_ring, COUNT_LOSS, "lost: the ring buffer was full")                                 \
	X(lost_state, COUNT_LOSS, "lost: a map in the kernel was full")                            \
	X(bad_event, COUNT_LOSS, "lost: unreadable records")                                       \
	X(rows, COUNT_PLAIN, "became rows")                                                        \
	X(pending, COUNT_GAUGE, "not read yet, or waiting for a name")                             \
	X(read_fail, COUNT_PLAIN, "parts that rows went without; of these Python stacks:")         \
	X(stack_late, COUNT_PLAIN, "it was over before a moment to take it came")                  \
	X(stack_state, COUNT_PLAIN, "the thread's state in Python was not found")                  \
	X(stack_moved, COUNT_PLAIN, "the thread ran on while it was looked at")                    \
	X(stack_room, COUNT_PLAIN, "a map in the kernel was full")                                 \
	X(stack_share, COUNT_PLAIN, "stacks had cost the process their share of time already")     \
	X(rows_gone, COUNT_LACK, "rows with <gone>: code that died before it was read")            \
	X(rows_unread, COUNT_LACK, "rows with <unread>: code or symbols not read in time")         \
	X(rows_unnamed, COUNT_LACK, "rows with a thread of Python whose name is not known")        \
	X(recovered, COUNT_PLAIN, "rows of earlier runs, found in the spool")                      \
	X(inserted, COUNT_PLAIN, "rows in the database")                                           \
	X(dropped_memory, COUNT_LOSS, "rows dropped for want of memory")                           \
	X(dropped_spool, COUNT_LOSS, "rows dropped: the spool is full, or they are too old")       \
	X(dropped_corrupt, COUNT_LOSS, "rows in spool files that are torn or corrupt")             \
	X(dropped_refused, COUNT_LOSS, "rows that the database will never take")                   \
	X(lost_crash, COUNT_LOSS, "rows lost with the memory of a run that was killed")            \
	X(queued_rows, COUNT_GAUGE, "rows that wait to be sent")                                   \
	X(spooled_rows, COUNT_GAUGE, "of these in the spool")                                      \
	X(retries, COUNT_PLAIN, "batches sent once more")                                          \
	X(bytes_sent, COUNT_PLAIN, "bytes of acknowledged batches")                                \
	X(bpf_ns, COUNT_PLAIN, "run time of its BPF programs, estimated from samples")             \
	X(bpf_hits, COUNT_PLAIN, "runs of its BPF programs, likewise")                             \
	X(agent_ns, COUNT_PLAIN, "CPU time of the agent for it")                                   \
	X(sampling_level, COUNT_GAUGE, "events below 1 ms << level are thinned out; 0: none")      \
	X(skip_shift, COUNT_GAUGE, "one in 1 << shift is looked at")

struct agent_counts {
#define X(name, kind, what) uint64_t name;
	AGENT_COUNTS(X)
#undef X
};

struct agent_count {
	const char *name;
	size_t offset;
	enum agent_count_kind kind;
	const char *what;
};

enum {
#define X(name, kind, what) +1
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

/*
 * Those of one kind that are not 0: "3 lost: the ring buffer was full, 2 rows dropped for want of
 * memory". Returns `buf`, '' when there are none.
 */
const char *agent_counts_list(const struct agent_counts *counts, enum agent_count_kind kind,
			      char *buf, size_t size);

#endif
