/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of the agent in a single list, used for the columns of ebpf_agent, metrics, log and
 *doctor. A subject is a tracker, a table of sums, discovery ("processes") or the agent's own tables
 *("agent"). Invariants of each subject:
 *
 *	seen = filtered + sampled + lost_ring + lost_state + bad_event + rows + pending
 *	rows + recovered = inserted + dropped_memory + dropped_spool + dropped_corrupt +
 *			   dropped_refused + queued_rows
 *
 * `pending`: accepted in the kernel, row not made. After the stop `pending` must be 0; otherwise an
 *error is reported.
 */
#ifndef UNDERSPAN_AGENT_COUNTS_H
#define UNDERSPAN_AGENT_COUNTS_H

#include <stddef.h>
#include <stdint.h>

enum agent_count_kind {
	COUNT_PLAIN,
	COUNT_LOSS,  /* events or rows that will never reach the database */
	COUNT_LACK,  /* rows delivered without a name */
	COUNT_GAUGE, /* current value; other counters grow since the start */
	COUNT_COST,  /* subjects_measure() says of which subjects; otherwise NULL in the row */
};

/* X(name, kind, description) */
#define AGENT_COUNTS(X)                                                                            \
	X(seen, COUNT_PLAIN, "occurrences handled")                                                \
	X(filtered, COUNT_PLAIN, "no row wanted: below a threshold, not tracked")                  \
	X(sampled, COUNT_PLAIN, "sampled out by the governor, covered by the weights of the rows") \
	X(lost_ring, COUNT_LOSS, "lost: the ring buffer was full")                                 \
	X(lost_state, COUNT_LOSS, "lost: a map in the kernel was full, or the end was not seen")   \
	X(bad_event, COUNT_LOSS, "lost: unreadable records")                                       \
	X(rows, COUNT_PLAIN, "became rows")                                                        \
	X(pending, COUNT_GAUGE, "waiting to be read or named")                                     \
	X(read_fail, COUNT_PLAIN, "parts missing in rows; Python stacks among the parts:")         \
	X(stack_late, COUNT_PLAIN, "the interval ended before the stack could be taken")           \
	X(stack_state, COUNT_PLAIN, "the thread's state in Python was not found")                  \
	X(stack_moved, COUNT_PLAIN, "the thread ran on during the read")                           \
	X(stack_room, COUNT_PLAIN, "a map in the kernel was full")                                 \
	X(stack_share, COUNT_PLAIN, "the limit on time for stacks was used up")                    \
	X(rows_gone, COUNT_LACK, "rows with <gone>: code freed before the read")                   \
	X(rows_unread, COUNT_LACK, "rows with <unread>: code or symbols not read in time")         \
	X(rows_unnamed, COUNT_LACK, "rows with a Python thread of unknown name")                   \
	X(recovered, COUNT_PLAIN, "rows of earlier runs, found in the spool")                      \
	X(inserted, COUNT_PLAIN, "rows in the database")                                           \
	X(dropped_memory, COUNT_LOSS, "rows dropped for want of memory")                           \
	X(dropped_spool, COUNT_LOSS, "rows dropped: spool full, or rows too old")                  \
	X(dropped_corrupt, COUNT_LOSS, "rows in torn or corrupt spool files")                      \
	X(dropped_refused, COUNT_LOSS, "rows rejected by the database")                            \
	X(lost_crash, COUNT_LOSS, "rows lost in memory when a run was killed")                     \
	X(queued_rows, COUNT_GAUGE, "rows waiting to be sent")                                     \
	X(spooled_rows, COUNT_GAUGE, "rows waiting in the spool")                                  \
	X(retries, COUNT_PLAIN, "batches retried")                                                 \
	X(columns_left_out, COUNT_GAUGE, "columns missing in the database's table")                \
	X(bytes_sent, COUNT_PLAIN, "bytes of acknowledged batches")                                \
	X(bpf_ns, COUNT_COST, "run time of BPF programs, estimated from samples")                  \
	X(bpf_hits, COUNT_COST, "runs of BPF programs, estimated from samples")                    \
	X(agent_ns, COUNT_COST, "CPU time of the agent")                                           \
	X(sampling_level, COUNT_GAUGE, "events below 1 ms << level are sampled; 0: all are kept")  \
	X(skip_shift, COUNT_GAUGE, "sampled: one event in 1 << shift is kept")

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
};
extern const struct agent_count agent_count_list[N_AGENT_COUNTS];

static inline uint64_t agent_count_of(const struct agent_counts *counts, size_t i)
{
	return *(const uint64_t *)((const char *)counts + agent_count_list[i].offset);
}

/* `now` minus `before`; gauges keep the value of `now`. */
void agent_counts_since(const struct agent_counts *now, const struct agent_counts *before,
			struct agent_counts *ret);

/*
 * Nonzero counters of a kind as text: "3 lost: the ring buffer was full, 2 rows dropped for want of
 * memory"; '': none. Returns `buf`.
 */
const char *agent_counts_list(const struct agent_counts *counts, enum agent_count_kind kind,
			      char *buf, size_t size);

#endif
