// SPDX-License-Identifier: Apache-2.0
/* Rows of short events are thinned after a minute above the limit, and come back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "agent/row_limit.h"
#include "events/event.h"

enum { INTERVAL_S = 5 };
static struct row_limit limit;
static double made;

/* Events of 0 ms at a constant rate, of which the level keeps some. Returns the rows per second. */
static double run(double events_per_second, unsigned int seconds, double per_second)
{
	double begin = made;

	for (unsigned int s = 0; s < seconds; s += INTERVAL_S) {
		made += events_per_second * INTERVAL_S *
			(double)sampling_probability(0, limit.level) / (double)(1ULL << 32);
		row_limit_adjust(&limit, (uint64_t)made, INTERVAL_S, per_second);
	}
	return (made - begin) / seconds;
}

static void reset(void)
{
	limit = (struct row_limit){ 0 };
	made = 0;
}

static void test_below_the_limit_each_event_is_a_row(void **state)
{
	(void)state;
	reset();
	assert_true(run(99, 3600, 100) == 99);
	assert_int_equal(limit.level, 0);
}

static void test_a_burst_of_a_minute_is_kept_whole(void **state)
{
	(void)state;
	reset();
	/* 6,000 rows above the limit: after 30 s */
	assert_true(run(299, 25, 100) == 299);
	assert_int_equal(limit.level, 0);
	assert_true(run(1, 3600, 100) == 1);
	assert_true(run(299, 25, 100) == 299);
	assert_int_equal(limit.level, 0);
}

static void test_a_busy_host_has_rows_at_the_limit(void **state)
{
	static const double busy[] = { 101, 150, 250, 500, 1000, 3199 };

	(void)state;
	for (size_t i = 0; i < sizeof(busy) / sizeof(*busy); i++) {
		double rate;

		reset();
		run(busy[i], 7200, 100);
		rate = run(busy[i], 3600, 100);
		assert_true(rate <= 100 && rate >= 45);
	}
	reset();
	run(100000, 600,
	    100); /* never less than one in 32: hours of a storm are the governor's limits on CPU */
	assert_int_equal(limit.level, ROW_LIMIT_LEVEL_MAX);
	assert_true(sampling_probability(32000000, limit.level) == 1ULL << 32);
}

static void test_all_rows_come_back(void **state)
{
	(void)state;
	reset();
	run(3000, 600, 100);
	assert_int_equal(limit.level, 5);
	run(40, 5 * 3 * INTERVAL_S, 100);
	assert_int_equal(limit.level, 0);
	run(3000, 600, 100);
	assert_true(
		row_limit_adjust(&limit, (uint64_t)made, INTERVAL_S, 0)); /* reloaded: no limit */
	assert_int_equal(limit.level, 0);
	assert_false(row_limit_adjust(&limit, (uint64_t)made, INTERVAL_S, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_below_the_limit_each_event_is_a_row),
		cmocka_unit_test(test_a_burst_of_a_minute_is_kept_whole),
		cmocka_unit_test(test_a_busy_host_has_rows_at_the_limit),
		cmocka_unit_test(test_all_rows_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
