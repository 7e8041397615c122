/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time by process, thread and Python line for `underspan top`, from rows of a live measurement:
 * ebpf_off_cpu_profile (all waits), ebpf_gil_wait_profile (holders), ebpf_gc_pause, ebpf_request,
 * ebpf_loop_stall, ebpf_on_cpu (lines), and the kernel's CPU times (processes, threads). Not
 * thread-safe: the caller has a lock.
 */
#ifndef UNDERSPAN_COMMANDS_TOP_SUMS_H
#define UNDERSPAN_COMMANDS_TOP_SUMS_H

#include "commands/top/entries.h"
#include "rows/column.h"

/* Trackers that the times come from, as bits. */
enum top_source {
	TOP_OF_OFF_CPU = 1,
	TOP_OF_GIL_WAIT = 2,
	TOP_OF_GC_PAUSE = 4,
	TOP_OF_REQUEST = 8,
	TOP_OF_LOOP_STALL = 16,
	TOP_OF_HOST = 32,   /* CPU times of the kernel, live */
	TOP_OF_ON_CPU = 64, /* CPU times by samples: of lines, and of all in a window */
};

/* The trackers' names, all that `top` needs. */
enum { TOP_SOURCES = 6 };
extern const struct top_tracker {
	const char *name;
	enum top_source source;
} top_trackers[TOP_SOURCES];

/*
 * Whether a part of the entry was measured. `lacks`: sources that did not measure all the time;
 * `of_process`: of TOP_OF_GIL_WAIT and TOP_OF_ON_CPU those that measured this process.
 */
bool top_part_is_known(const struct top_sums *sums, const struct top_entry *e,
		       const struct top_sum *sum, enum top_part part, unsigned int lacks,
		       unsigned int of_process);

/* The part of a cause of off_cpu. */
enum top_part top_part_of(const char *cause);

void top_sums_row(struct top_sums *sums, const struct table *table, const void *row);

/* Every second: `shown` becomes the time since the last publication, if sums have arrived.
 * `lacking`: sources that do not measure now. */
void top_sums_publish(struct top_sums *sums, unsigned int lacking, uint64_t now_ns);

/* At the end: the rows of the last flush are in `all`; `measured_ns`: their time. */
void top_sums_finish(struct top_sums *sums, uint64_t measured_ns);

#endif
