/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a timeline holds where there are more rows of a kind than TIMELINE_ROWS_MAX: first those of
 * threads during the slowest requests, then the longest; idle threads last. Samples have no length:
 * any part of them that is kept is spread evenly over threads and time.
 */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_LIMIT_H
#define UNDERSPAN_COMMANDS_TIMELINE_LIMIT_H

#include "commands/timeline/slices.h"

/* How many requests count as the slowest. */
enum { TIMELINE_SLOW_MAX = 200 };

/* A thread while it had slow requests, or they waited for it. */
struct timeline_slow {
	uint32_t host_tid;
	uint64_t begin_ns, end_ns;
};

/*
 * Of the slowest requests so far, sorted by thread and begin, without overlaps. Returns their
 * number; *ret: heap.
 */
size_t timeline_slow_times(const struct timeline *t, struct timeline_slow **ret);

/* More than `most` slices of a kind: drops all but TIMELINE_ROWS_MAX, which t->left_out counts. */
void timeline_limit(struct timeline *t, uint8_t kind, size_t most);

/* Says in report["notes"] what t->left_out has; `of`: "", or "before: ". */
void timeline_add_notes(const struct timeline *t, const char *of, json_t *report);

/* The order of samples, of which any first part is an even choice; equal in
 * sql/timeline/on_cpu.sql. */
uint32_t timeline_scatter(const struct slice *s);

/* Sum of the durations of the slices of a kind. */
uint64_t timeline_kind_ns(const struct timeline *t, uint8_t kind);

#endif
