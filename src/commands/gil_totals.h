/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for the GIL, summed by thread, of both sides: how long a thread waited, and how long others
 * waited while it had the GIL, at which line. How long and how often is from the sums that the
 * kernel keeps, which lose nothing; who had the GIL, lines and percentiles are from each wait's
 * row.
 */
#ifndef UNDERSPAN_GIL_TOTALS_H
#define UNDERSPAN_GIL_TOTALS_H

#include <uthash.h>

#include "pipeline/column.h"

/* A place in Python code at which a thread had the GIL that others waited for. */
struct gil_line {
	uint64_t waits, wait_ns; /* of waits that began with it there */
	UT_hash_handle hh;
	char text[];
};

struct gil_thread_id {
	uint32_t host_pid;
	uint32_t
		tid; /* as its own PID namespace counts; 0: others than those that are told apart */
};

struct gil_thread {
	struct gil_thread_id id;
	uint32_t pid, host_tid; /* 0: not known */
	char name[256];		/* Python's, else the kernel's */
	/* as one that waited */
	uint64_t waits, wait_ns, runq_ns, forced_ns, max_ns;
	uint32_t *histogram; /* of its waits' durations; NULL: none */
	uint64_t rows;
	/* as one that had it */
	uint64_t held_ns; /* others' waiting time */
	uint64_t held_waits;
	struct gil_line *lines; /* the longest first, when sorted */
	UT_hash_handle hh;
};

struct gil_totals {
	struct gil_thread *threads; /* uthash */
	uint64_t waits, wait_ns;    /* of all */
	uint64_t rows, rows_ns;	    /* those of them that are rows: their holders are known */
	uint64_t unheld_ns;	    /* of those, with nobody known to have had it */
	bool failed;		    /* out of memory */
};

/* Takes rows of both tables, and leaves others alone. */
void gil_totals_row(struct gil_totals *totals, const struct table *table, const void *row);

/* So many of a hundred of a thread's waits were not longer than this; to 4 %. 0: it has no rows. */
uint64_t gil_percentile_ns(const struct gil_thread *thread, double percent);

void gil_totals_sort_by_wait(struct gil_totals *totals);
/* Also each thread's lines. */
void gil_totals_sort_by_held(struct gil_totals *totals);

void gil_totals_free(struct gil_totals *totals);

#endif
