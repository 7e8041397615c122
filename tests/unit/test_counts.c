// SPDX-License-Identifier: Apache-2.0
/* Counters as text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "agent/counts.h"

static void check(const struct agent_counts *counts, enum agent_count_kind kind, size_t size,
		  const char *expected)
{
	char text[400];

	assert_string_equal(agent_counts_list(counts, kind, text, size), expected);
}

static void test_one_is_in_the_singular(void **state)
{
	struct agent_counts counts = { .rows_unnamed = 1, .lost_ring = 1, .dropped_memory = 1 };

	(void)state;
	check(&counts, COUNT_LACK, 400, "1 row with a Python thread of unknown name");
	check(&counts, COUNT_LOSS, 400,
	      "1 lost: the ring buffer was full, 1 row dropped for want of memory");
	counts.rows_unnamed = 21;
	check(&counts, COUNT_LACK, 400, "21 rows with a Python thread of unknown name");
}

static void test_text_is_cut_at_the_size(void **state)
{
	const struct agent_counts counts = { .lost_ring = 1, .dropped_memory = 1 };

	(void)state;
	check(&counts, COUNT_LOSS, 8, "1 lost:");
	check(&counts, COUNT_LOSS, 34, "1 lost: the ring buffer was full,");
	check(&counts, COUNT_LOSS, 40, "1 lost: the ring buffer was full, 1 row");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_is_in_the_singular),
		cmocka_unit_test(test_text_is_cut_at_the_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
