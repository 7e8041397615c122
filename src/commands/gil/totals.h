/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GIL waits summed by thread: time waited, and time other threads waited while the thread held the
 * GIL, by line. Durations and counts come from the sums kept in BPF (lossless); holders, lines and
 * percentiles from rows of single waits.
 */
#ifndef UNDERSPAN_COMMANDS_GIL_TOTALS_H
#define UNDERSPAN_COMMANDS_GIL_TOTALS_H

#include "base/hash.h"
#include "rows/column.h"

/* A Python line at which a thread held the GIL while others waited. */
struct gil_line {
	uint64_t waits, wait_ns; /* waits that started with the holder at this line */
	UT_hash_handle hh;
	char text[];
};

struct gil_thread_id {
	uint32_t host_pid;
	uint32_t tid; /* id in its PID namespace; 0: sum of further threads */
};

struct gil_thread {
	struct gil_thread_id id;
	uint32_t pid, host_tid; /* 0: unknown */
	uint64_t threads;	/* summed here, of a window of a database; 0: one */
	uint64_t before_ns;	/* wait_ns of the window compared with */
	char name[256];		/* Python's name, otherwise the kernel's */
	/* as waiter */
	uint64_t waits, wait_ns, runq_ns, forced_ns, max_ns;
	uint32_t *histogram; /* of durations of waits; NULL: none */
	uint64_t rows;
	/* as holder */
	uint64_t held_ns; /* waiting time of other threads */
	uint64_t held_waits;
	struct gil_line *lines; /* longest first after sorting */
	UT_hash_handle hh;
};

struct gil_totals {
	struct gil_thread *threads; /* uthash */
	uint64_t waits, wait_ns;    /* of all threads */
	uint64_t rows, rows_ns;	    /* waits with rows: holders known */
	uint64_t unheld_ns;	    /* part of rows_ns without a known holder */
	uint64_t before_ns;	    /* wait_ns of the window compared with */
	bool failed;		    /* out of memory */
};

/* The thread, added if missing. NULL: out of memory. */
struct gil_thread *gil_totals_thread(struct gil_totals *totals, uint32_t host_pid, uint32_t tid);

/* Adds waits at a line; `text` may be untrusted. -ENOMEM. */
int gil_thread_add_line(struct gil_thread *holder, const char *text, uint64_t waits, uint64_t ns);

/* Adds rows of both tables; ignores other tables. */
void gil_totals_row(struct gil_totals *totals, const struct table *table, const void *row);

/* Percentile of a thread's waits, accurate to 4 %. 0: no rows. */
uint64_t gil_percentile_ns(const struct gil_thread *thread, double percent);

struct gil_process_sum {
	uint64_t waits, wait_ns;
};
struct gil_process_sum gil_totals_of_process(const struct gil_totals *totals, uint32_t host_pid);

void gil_totals_sort_by_wait(struct gil_totals *totals);
/* Also sorts each thread's lines. */
void gil_totals_sort_by_held(struct gil_totals *totals);

void gil_totals_free(struct gil_totals *totals);

#endif
