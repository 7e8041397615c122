// SPDX-License-Identifier: Apache-2.0
/* Which rows a timeline holds: the bound, the order, and the count of what is left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "commands/report.h"
#include "commands/timeline/limit.h"

enum { REQUEST = 0, OFF_CPU = 5 };
static const uint64_t START_US = 1795000000000000;

static void add(struct timeline *t, int kind, unsigned int tid, uint64_t at_us, uint64_t ns,
		int idle)
{
	json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:s}", "host", "h", "pid",
				7, "tid", tid, "host_pid", 7, "host_tid", tid, "start_us",
				(json_int_t)(START_US + at_us), "duration_ns", (json_int_t)ns,
				"idle", idle, "cause", "lock");

	timeline_add(t, &timeline_kinds[kind], row);
	timeline_limit(t, (uint8_t)kind, 2 * TIMELINE_ROWS_MAX);
	json_decref(row);
}

/* 250,000 waits, each of another length, and 50 short ones during the only request. */
static void test_bound(void **state)
{
	enum { WAITS = 250000, SHORT = 50, IDLE = 100 };
	struct timeline t = { 0 };
	size_t within = 0;
	uint64_t all_ns = 0, shortest = UINT64_MAX;

	(void)state;
	assert_string_equal(timeline_kinds[OFF_CPU].name, "off_cpu");
	add(&t, REQUEST, 9, 1000, 100 * NSEC_PER_MSEC, 0);
	for (uint64_t i = 0; i < WAITS; i++) {
		uint64_t ns = NSEC_PER_MSEC + (i * 7919 % WAITS) * 1000;

		add(&t, OFF_CPU, 8, i * 10, ns, 0);
		all_ns += ns;
		assert_true(t.n_of[OFF_CPU] <= 2 * TIMELINE_ROWS_MAX);
		if (i >= WAITS / 2 && i < WAITS / 2 + SHORT)
			add(&t, OFF_CPU, 9, 2000 + (i - WAITS / 2) * 100, 500, 0);
	}
	for (uint64_t i = 0; i < IDLE; i++)
		add(&t, OFF_CPU, 10, i * 1000, NSEC_PER_SEC, 1);
	all_ns += SHORT * 500 + IDLE * NSEC_PER_SEC;
	timeline_limit(&t, OFF_CPU, TIMELINE_ROWS_MAX);
	assert_int_equal(t.err, 0);
	assert_int_equal(t.n, TIMELINE_ROWS_MAX + 1);
	assert_int_equal(t.left_out[OFF_CPU].rows, WAITS + SHORT + IDLE - TIMELINE_ROWS_MAX);
	assert_int_equal(t.left_out[OFF_CPU].ns + timeline_kind_ns(&t, OFF_CPU), all_ns);
	for (size_t i = 0; i < t.n; i++) {
		const struct slice *s = &t.slices[i];

		within += s->thread == 9 && s->kind == OFF_CPU;
		assert_false(s->idle);
		if (s->thread == 8 && s->duration_ns < shortest)
			shortest = s->duration_ns;
	}
	assert_int_equal(within, SHORT);
	/* the longest of the others, exactly */
	assert_int_equal(shortest, NSEC_PER_MSEC + (WAITS - (TIMELINE_ROWS_MAX - SHORT)) * 1000ULL);
	timeline_free(&t);
}

/* Overlapping requests of a thread are one time; only so many requests count. */
static void test_slow_times(void **state)
{
	struct timeline t = { 0 };
	struct timeline_slow *times;
	size_t n;

	(void)state;
	add(&t, REQUEST, 9, 0, 10 * NSEC_PER_MSEC, 0);
	add(&t, REQUEST, 9, 5000, 2 * NSEC_PER_MSEC, 0);
	add(&t, REQUEST, 9, 9000, 5 * NSEC_PER_MSEC, 0);
	add(&t, REQUEST, 8, 20000, 3 * NSEC_PER_MSEC, 0);
	add(&t, REQUEST, 9, 30000, NSEC_PER_MSEC, 0);
	n = timeline_slow_times(&t, &times);
	assert_int_equal(n, 3);
	assert_int_equal(times[0].host_tid, 8);
	assert_int_equal(times[1].begin_ns, START_US * 1000);
	assert_int_equal(times[1].end_ns, START_US * 1000 + 14 * NSEC_PER_MSEC);
	assert_int_equal(times[2].end_ns - times[2].begin_ns, NSEC_PER_MSEC);
	free(times);
	for (unsigned int i = 0; i < 300; i++)
		add(&t, REQUEST, 100 + i, 0, NSEC_PER_SEC, 0);
	n = timeline_slow_times(&t, &times);
	assert_int_equal(n, TIMELINE_SLOW_MAX);
	assert_true(times[0].host_tid >= 100);
	free(times);
	timeline_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_bound),
					    cmocka_unit_test(test_slow_times) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
