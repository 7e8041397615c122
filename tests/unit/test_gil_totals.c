// SPDX-License-Identifier: Apache-2.0
/* GIL waits by thread: sums, holders and percentiles of synthetic rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "commands/gil/totals.h"
#include "base/util.h"

struct row {
	uint32_t host_pid, pid, tid, host_tid;
	uint64_t duration_ns, waits, wait_ns, max_ns, runq_ns, forced_ns;
	const char *thread_name, *comm;
	struct column_pairs holders;
	struct column_strings holder_py_stack;
};

#define COL(kind, name) COLUMN(kind, struct row, name, #name, "")
static const struct column columns[] = {
	COL(COLUMN_U32, host_pid),
	COL(COLUMN_U32, pid),
	COL(COLUMN_U32, tid),
	COL(COLUMN_U32, host_tid),
	COL(COLUMN_U64, duration_ns),
	COL(COLUMN_U64, waits),
	COL(COLUMN_U64, wait_ns),
	COL(COLUMN_U64, max_ns),
	COL(COLUMN_U64, runq_ns),
	COL(COLUMN_U64, forced_ns),
	COL(COLUMN_STRING, thread_name),
	COL(COLUMN_STRING, comm),
	COL(COLUMN_PAIRS, holders),
	COL(COLUMN_STRINGS, holder_py_stack),
};
static const struct table rows = { "ebpf_gil_wait", { columns }, { ARRAY_SIZE(columns) } };
static const struct table sums = { "ebpf_gil_wait_profile", { columns }, { ARRAY_SIZE(columns) } };
static const struct table others = { "ebpf_off_cpu", { columns }, { ARRAY_SIZE(columns) } };

static struct gil_thread *find(struct gil_totals *totals, uint32_t tid)
{
	struct gil_thread_id id = { 7, tid };
	struct gil_thread *thread;

	HASH_FIND(hh, totals->threads, &id, sizeof(id), thread);
	assert_non_null(thread);
	return thread;
}

static void percentiles_are_right_to_four_percent(void **state)
{
	(void)state;
	for (uint64_t unit = 1; unit < 1000000000000; unit *= 10) {
		struct gil_totals totals = { 0 };
		struct row sum = { .host_pid = 7, .tid = 8, .waits = 1000, .max_ns = 1000 * unit };

		for (uint64_t i = 1; i <= 1000; i++)
			gil_totals_row(
				&totals, &rows,
				&(struct row){ .host_pid = 7, .tid = 8, .duration_ns = i * unit });
		gil_totals_row(&totals, &sums, &sum);
		for (int percent = 1; percent <= 99; percent++) {
			uint64_t ns = gil_percentile_ns(find(&totals, 8), percent);
			uint64_t right = (uint64_t)percent * 10 * unit;

			assert_true(ns >= right && ns <= right + right / 25);
		}
		assert_int_equal(gil_percentile_ns(find(&totals, 8), 100), 1000 * unit);
		gil_totals_free(&totals);
	}
}

static void extreme_durations_have_a_place(void **state)
{
	static const uint64_t ns[] = { 0, 1, 63, 64, 65, 127, 128, UINT64_MAX / 2, UINT64_MAX };
	struct gil_totals totals = { 0 };
	struct row sum = { .host_pid = 7, .tid = 8, .max_ns = UINT64_MAX };

	(void)state;
	gil_totals_row(&totals, &sums, &sum);
	assert_int_equal(gil_percentile_ns(find(&totals, 8), 99), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ns); i++)
		gil_totals_row(&totals, &rows,
			       &(struct row){ .host_pid = 7, .tid = 8, .duration_ns = ns[i] });
	assert_int_equal(gil_percentile_ns(find(&totals, 8), 1), 0);
	assert_true(gil_percentile_ns(find(&totals, 8), 100) == UINT64_MAX);
	assert_false(totals.failed);
	gil_totals_free(&totals);
}

static void holders_share_the_waits(void **state)
{
	static const struct column_pair holders[] = { { { 9, 600 }, "nine" },
						      { { 10, 300 }, "ten\x1b" },
						      { { 0, 50 }, "" } };
	static const char *const stack[] = { "f (a.py:1)", "main (a.py:9)" };
	struct row row = { .host_pid = 7,
			   .pid = 3,
			   .tid = 8,
			   .host_tid = 80,
			   .duration_ns = 1000,
			   .comm = "python3",
			   .thread_name = "",
			   .holders = { holders, 3 },
			   .holder_py_stack = { stack, 2 } };
	struct row sum = { .host_pid = 7,
			   .tid = 8,
			   .waits = 3,
			   .wait_ns = 2500,
			   .max_ns = 1000,
			   .comm = "python3",
			   .thread_name = "eight" };
	struct gil_totals totals = { 0 };

	(void)state;
	gil_totals_row(&totals, &rows, &row);
	gil_totals_row(&totals, &rows, &row);
	gil_totals_row(&totals, &sums, &sum);
	gil_totals_row(&totals, &others, &row);
	assert_int_equal(totals.rows, 2);
	assert_int_equal(totals.rows_ns, 2000);
	assert_int_equal(totals.waits, 3);
	assert_int_equal(totals.wait_ns, 2500);
	assert_int_equal(totals.unheld_ns, 200); /* including waits with unknown holder */
	assert_int_equal(find(&totals, 8)->waits, 3);
	assert_string_equal(find(&totals, 8)->name, "eight");
	assert_string_equal(find(&totals, 10)->name, "ten?");
	assert_null(find(&totals, 10)->lines);
	gil_totals_sort_by_held(&totals);
	assert_int_equal(totals.threads->id.tid, 9);
	assert_int_equal(totals.threads->held_ns, 1200);
	assert_string_equal(totals.threads->lines->text, "f (a.py:1)");
	assert_int_equal(totals.threads->lines->wait_ns, 1200);
	gil_totals_sort_by_wait(&totals);
	assert_int_equal(totals.threads->id.tid, 8);
	gil_totals_free(&totals);
}

static void there_is_an_end_to_threads(void **state)
{
	struct gil_totals totals = { 0 };
	uint64_t waits = 0;

	(void)state;
	for (uint32_t tid = 1; tid <= 12000; tid++) {
		struct row row = { .host_pid = 7,
				   .tid = tid,
				   .duration_ns = 5,
				   .waits = 1,
				   .wait_ns = 5,
				   .max_ns = 5,
				   .thread_name = "t" };

		gil_totals_row(&totals, &rows, &row);
		gil_totals_row(&totals, &sums, &row);
	}
	assert_int_equal(HASH_COUNT(totals.threads), 10001);
	for (struct gil_thread *t = totals.threads; t; t = t->hh.next) {
		waits += t->waits;
		assert_string_equal(t->name, t->id.tid ? "t" : "(others)");
		assert_int_equal(t->waits, t->id.tid ? 1 : 2000);
		assert_int_equal(gil_percentile_ns(t, 99), 5);
	}
	assert_int_equal(waits, totals.waits);
	gil_totals_free(&totals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(percentiles_are_right_to_four_percent),
		cmocka_unit_test(extreme_durations_have_a_place),
		cmocka_unit_test(holders_share_the_waits),
		cmocka_unit_test(there_is_an_end_to_threads),
	};

	return cmocka_run_group_tests_name("gil_totals", tests, NULL, NULL);
}
