// SPDX-License-Identifier: Apache-2.0
/* GIL waits by thread. See totals.h. */
#include "commands/gil/totals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

/* Histogram buckets: 2^STEP_BITS equal buckets between two powers of two. */
enum { STEP_BITS = 5, STEPS = 1 << STEP_BITS, BUCKETS = (64 - STEP_BITS + 1) << STEP_BITS };
enum { MAX_LINES = 4096, LINE_MAX_BYTES = 512 };
/* Limit of threads; further threads are summed under tid 0. */
enum { MAX_THREADS = 10000 };

/* ---- percentiles ---- */

static size_t bucket_of(uint64_t ns)
{
	unsigned int shift;

	if (ns < STEPS)
		return ns;
	shift = 63U - (unsigned int)__builtin_clzll(ns) - STEP_BITS;
	return ((size_t)(shift + 1) << STEP_BITS) + (size_t)((ns >> shift) - STEPS);
}

/* Largest duration of the bucket. */
static uint64_t end_of_bucket(size_t bucket)
{
	size_t shift = bucket >> STEP_BITS;

	if (!shift)
		return bucket;
	return (((uint64_t)STEPS + (bucket & (STEPS - 1)) + 1) << (shift - 1)) - 1;
}

static int count_duration(struct gil_thread *thread, uint64_t ns)
{
	if (!thread->histogram)
		thread->histogram = calloc(BUCKETS, sizeof(*thread->histogram));
	if (!thread->histogram)
		return -ENOMEM;
	thread->histogram[bucket_of(ns)]++;
	thread->rows++;
	return 0;
}

uint64_t gil_percentile_ns(const struct gil_thread *thread, double percent)
{
	uint64_t wanted = (uint64_t)ceil((double)thread->rows * percent / 100), seen = 0;

	for (size_t i = 0; thread->histogram && i < BUCKETS; i++) {
		uint64_t end = end_of_bucket(i);

		seen += thread->histogram[i];
		if (seen >= wanted && seen)
			return end < thread->max_ns ? end : thread->max_ns;
	}
	return 0;
}

/* ---- threads ---- */

struct gil_thread *gil_totals_thread(struct gil_totals *totals, uint32_t host_pid, uint32_t tid)
{
	struct gil_thread_id id = { host_pid, tid };
	struct gil_thread *thread;

	HASH_FIND(hh, totals->threads, &id, sizeof(id), thread);
	if (!thread && HASH_COUNT(totals->threads) >= MAX_THREADS) {
		id = (struct gil_thread_id){ 0 };
		HASH_FIND(hh, totals->threads, &id, sizeof(id), thread);
	}
	if (thread)
		return thread;
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->id = id;
	if (!id.tid)
		strcpy(thread->name, "(others)");
	HASH_ADD(hh, totals->threads, id, sizeof(thread->id), thread);
	return thread;
}

static uint64_t uint_of(const struct table *table, const void *row, const char *name)
{
	return column_uint(column_find(table, name), row);
}

static struct gil_thread *waiter_of(struct gil_totals *totals, const struct table *table,
				    const void *row)
{
	struct gil_thread *thread = gil_totals_thread(totals,
						      (uint32_t)uint_of(table, row, "host_pid"),
						      (uint32_t)uint_of(table, row, "tid"));
	char text[256];

	if (!thread || !thread->id.tid)
		return thread;
	thread->pid = (uint32_t)uint_of(table, row, "pid");
	thread->host_tid = (uint32_t)uint_of(table, row, "host_tid");
	column_text(column_find(table, "thread_name"), row, text, sizeof(text));
	/* the kernel's name if Python's is unknown */
	if (!*text && !*thread->name)
		column_text(column_find(table, "comm"), row, text, sizeof(text));
	if (*text)
		text_printable(thread->name, sizeof(thread->name), text);
	return thread;
}

int gil_thread_add_line(struct gil_thread *holder, const char *text, uint64_t waits, uint64_t ns)
{
	char clean[LINE_MAX_BYTES];
	struct gil_line *line;
	size_t len;

	if (HASH_COUNT(holder->lines) >= MAX_LINES)
		text = "<others>";
	len = strlen(text_printable(clean, sizeof(clean), text));
	HASH_FIND(hh, holder->lines, clean, len, line);
	if (!line) {
		line = calloc(1, sizeof(*line) + len + 1);
		if (!line)
			return -ENOMEM;
		memcpy(line->text, clean, len);
		HASH_ADD(hh, holder->lines, text, len, line);
	}
	line->waits += waits;
	line->wait_ns += ns;
	return 0;
}

/* ---- rows ---- */

static int add_holders(struct gil_totals *totals, const struct table *table, const void *row,
		       uint64_t duration_ns)
{
	struct column_pairs holders = column_pairs(column_find(table, "holders"), row);
	struct column_strings stack = column_strings(column_find(table, "holder_py_stack"), row);
	uint32_t host_pid = (uint32_t)uint_of(table, row, "host_pid");
	uint64_t held_ns = 0;
	int err = 0;

	for (size_t i = 0; i < holders.n; i++) {
		const struct column_pair *pair = &holders.items[i];
		struct gil_thread *holder = pair->values[0]
						    ? gil_totals_thread(totals, host_pid,
									(uint32_t)pair->values[0])
						    : NULL;

		if (!pair->values[0])
			continue;
		if (!holder)
			return -ENOMEM;
		if (holder->id.tid && pair->text && *pair->text)
			text_printable(holder->name, sizeof(holder->name), pair->text);
		holder->held_ns += pair->values[1];
		holder->held_waits++;
		held_ns += pair->values[1];
		/* the stack belongs to the first holder, at the start of the wait */
		if (i == 0 && stack.n && !err)
			err = gil_thread_add_line(holder, stack.items[0], 1, pair->values[1]);
	}
	totals->unheld_ns += duration_ns > held_ns ? duration_ns - held_ns : 0;
	return err;
}

static int add_row(struct gil_totals *totals, const struct table *table, const void *row)
{
	struct gil_thread *waiter = waiter_of(totals, table, row);
	uint64_t ns = uint_of(table, row, "duration_ns");

	if (!waiter)
		return -ENOMEM;
	totals->rows++;
	totals->rows_ns += ns;
	if (count_duration(waiter, ns))
		return -ENOMEM;
	return add_holders(totals, table, row, ns);
}

static int add_sum(struct gil_totals *totals, const struct table *table, const void *row)
{
	struct gil_thread *waiter = waiter_of(totals, table, row);
	uint64_t waits = uint_of(table, row, "waits"), ns = uint_of(table, row, "wait_ns");
	uint64_t max_ns = uint_of(table, row, "max_ns");

	if (!waiter)
		return -ENOMEM;
	waiter->waits += waits;
	waiter->wait_ns += ns;
	waiter->runq_ns += uint_of(table, row, "runq_ns");
	waiter->forced_ns += uint_of(table, row, "forced_ns");
	if (max_ns > waiter->max_ns)
		waiter->max_ns = max_ns;
	totals->waits += waits;
	totals->wait_ns += ns;
	return 0;
}

void gil_totals_row(struct gil_totals *totals, const struct table *table, const void *row)
{
	int err = 0;

	if (!strcmp(table->name, "ebpf_gil_wait"))
		err = add_row(totals, table, row);
	else if (!strcmp(table->name, "ebpf_gil_wait_profile"))
		err = add_sum(totals, table, row);
	totals->failed |= err != 0;
}

struct gil_process_sum gil_totals_of_process(const struct gil_totals *totals, uint32_t host_pid)
{
	struct gil_process_sum sum = { 0 };

	for (const struct gil_thread *t = totals->threads; t; t = t->hh.next) {
		if (t->id.host_pid == host_pid) {
			sum.waits += t->waits;
			sum.wait_ns += t->wait_ns;
		}
	}
	return sum;
}

/* ---- order ---- */

static int by_wait(const struct gil_thread *a, const struct gil_thread *b)
{
	if (a->wait_ns != b->wait_ns)
		return a->wait_ns < b->wait_ns ? 1 : -1;
	return (a->id.tid > b->id.tid) - (a->id.tid < b->id.tid);
}

static int by_held(const struct gil_thread *a, const struct gil_thread *b)
{
	if (a->held_ns != b->held_ns)
		return a->held_ns < b->held_ns ? 1 : -1;
	return (a->id.tid > b->id.tid) - (a->id.tid < b->id.tid);
}

static int by_line(const struct gil_line *a, const struct gil_line *b)
{
	if (a->wait_ns != b->wait_ns)
		return a->wait_ns < b->wait_ns ? 1 : -1;
	return strcmp(a->text, b->text);
}

void gil_totals_sort_by_wait(struct gil_totals *totals)
{
	HASH_SORT(totals->threads, by_wait);
}

void gil_totals_sort_by_held(struct gil_totals *totals)
{
	HASH_SORT(totals->threads, by_held);
	for (struct gil_thread *t = totals->threads; t; t = t->hh.next)
		HASH_SORT(t->lines, by_line);
}

void gil_totals_free(struct gil_totals *totals)
{
	struct gil_thread *thread, *next;

	HASH_ITER(hh, totals->threads, thread, next)
	{
		struct gil_line *line, *next_line;

		HASH_ITER(hh, thread->lines, line, next_line)
		{
			HASH_DEL(thread->lines, line);
			free(line);
		}
		HASH_DEL(totals->threads, thread);
		free(thread->histogram);
		free(thread);
	}
}
