// SPDX-License-Identifier: Apache-2.0
/* Events are skipped as long as it makes the programs cheaper. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "agent/skip_cost.h"

enum { RUNS = 1000, MOST = 10 };

/* Runs that start for `start` ns and examine for `examined` ns. */
static void measure(struct skip_cost *cost, uint64_t start, uint64_t examined, unsigned int shift)
{
	skip_cost_measured(cost, RUNS * start + (RUNS * examined >> shift), RUNS, shift);
}

static unsigned int useful(uint64_t start, uint64_t examined, unsigned int shift)
{
	struct skip_cost cost = { 0 };

	measure(&cost, start, examined, 0);
	measure(&cost, start, examined, shift);
	return skip_cost_useful_shift(&cost, shift, MOST);
}

static void test_examining_costs_a_sixteenth_of_the_starts(void **state)
{
	(void)state;
	for (unsigned int shift = 1; shift <= MOST; shift++) {
		assert_int_equal(useful(1000, 3000, shift), 6);
		assert_int_equal(useful(100, 10000, shift), MOST);
		assert_in_range(useful(1000, 60, shift), 0, 0);
	}
}

static void test_nothing_is_known_before_two_measurements(void **state)
{
	struct skip_cost cost = { 0 };

	(void)state;
	assert_int_equal(skip_cost_useful_shift(&cost, 0, MOST), MOST);
	measure(&cost, 1000, 1000, 0);
	assert_int_equal(skip_cost_useful_shift(&cost, 0, MOST), MOST);
	cost = (struct skip_cost){ 0 };
	measure(&cost, 1000, 1000, 3); /* sampling from the start */
	assert_int_equal(skip_cost_useful_shift(&cost, 3, MOST), MOST);
}

static void test_no_run_changes_nothing(void **state)
{
	struct skip_cost cost = { 0 };

	(void)state;
	measure(&cost, 1000, 4000, 0);
	measure(&cost, 1000, 4000, 4);
	skip_cost_measured(&cost, 0, 0, 4);
	assert_int_equal(skip_cost_useful_shift(&cost, 4, MOST), 6);
}

/* The load has changed, or all that costs is the start. */
static void test_skipping_that_saves_nothing_is_of_no_use(void **state)
{
	struct skip_cost cost = { 0 };

	(void)state;
	skip_cost_measured(&cost, RUNS * 300, RUNS, 0);
	skip_cost_measured(&cost, RUNS * 310, RUNS, 4);
	assert_int_equal(skip_cost_useful_shift(&cost, 4, MOST), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examining_costs_a_sixteenth_of_the_starts),
		cmocka_unit_test(test_nothing_is_known_before_two_measurements),
		cmocka_unit_test(test_no_run_changes_nothing),
		cmocka_unit_test(test_skipping_that_saves_nothing_is_of_no_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
