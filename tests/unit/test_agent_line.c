// SPDX-License-Identifier: Apache-2.0
/* Command lines of agents: which two may write the same rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent_line.h"

#define LINE(words) line_of(words, sizeof(words)) /* a literal with NULs between words */
static struct agent_line line_of(const char *words, size_t n)
{
	struct agent_line line;
	char *copy = malloc(n); /* of the exact size, for AddressSanitizer */

	assert_non_null(copy);
	memcpy(copy, words, n);
	assert_true(agent_line_parse(copy, n, &line));
	free(copy);
	return line;
}

#define MEET(a, b) meets(LINE(a), LINE(b))
static bool meets(struct agent_line a, struct agent_line b)
{
	assert_int_equal(agent_lines_meet(&a, &b), agent_lines_meet(&b, &a));
	return agent_lines_meet(&a, &b);
}

#define R  "underspan\0run\0"
#define DB "--clickhouse=http://db:8123"

static void test_words(void **state)
{
	static const char *const others[] = { "underspan\0top\0", "underspan\0", "",
					      "underspan\0run\0--stdout\0",
					      "underspan\0run\0--stdout=true\0" };
	static const size_t sizes[] = { 14, 10, 0, 23, 28 };
	struct agent_line line;

	(void)state;
	for (size_t i = 0; i < 5; i++)
		assert_false(agent_line_parse(others[i], sizes[i], &line));
	line = LINE(R "--clickhouse-database\0x\0-p\0"
		      "7\0-p8,9\0--pid=10\0--trackers\0a\0--trackers=b,c\0--store=/d");
	assert_string_equal(line.database, "x");
	assert_string_equal(line.trackers, "a,b,c");
	assert_string_equal(line.store, "/d");
	assert_string_equal(line.clickhouse, "");
	assert_int_equal(line.n_pids, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(line.pids[i], 7 + i);
	line = LINE(R "--stdout=false\0--clickhouse_user=u\0--pid");
	assert_string_equal(line.clickhouse, "");
	assert_int_equal(line.n_pids, 0);
	/* a word that is cut is not said */
	assert_true(agent_line_parse(R "--store=/a", sizeof(R "--store=/a") - 1, &line));
	assert_string_equal(line.store, "");
}

/* What does not fit may be anything. */
static void test_long_words(void **state)
{
	static char words[200 << 10];
	size_t n = sizeof(R) - 1;
	struct agent_line line;

	(void)state;
	memcpy(words, R, n);
	for (uint32_t i = 0; i < 5000; i++)
		n += (size_t)snprintf(words + n, sizeof(words) - n, "-p%u", 100 + i) + 1;
	n += (size_t)snprintf(words + n, sizeof(words) - n, "--store=/%03000d", 1) + 1;
	n += (size_t)snprintf(words + n, sizeof(words) - n, "--trackers=%03000d", 1) + 1;
	assert_true(agent_line_parse(words, n, &line));
	assert_int_equal(line.n_pids, 0);
	assert_string_equal(line.store, "");
	assert_string_equal(line.trackers, "");
}

static void test_places(void **state)
{
	(void)state;
	assert_true(MEET(R DB, R DB "/"));
	assert_true(MEET(R DB, R "-c\0/etc/x.json"));
	assert_true(MEET(R, R));
	assert_true(MEET(R DB "\0--clickhouse_database=default", R DB));
	assert_false(MEET(R DB "\0--clickhouse_database=x", R DB));
	assert_false(MEET(R DB, R DB "4"));
	assert_false(MEET(R DB, R "--store=/d"));
	assert_false(MEET(R "--store=/e", R "--store=/d"));
	assert_true(MEET(R "--store=/d/", R "--store=/d"));
	assert_true(MEET(R "--store=./d", R "--store=/d"));
}

static void test_trackers(void **state)
{
	(void)state;
	assert_false(MEET(R "--trackers=a,b", R "--trackers=c,ab"));
	assert_true(MEET(R "--trackers=a,b", R "--trackers=c,b"));
	assert_true(MEET(R "--trackers=a,b", R));
}

/* --pid includes descendants: this process is one of its parent. */
static void test_processes(void **state)
{
	char own[64], parent[64];
	size_t n = (size_t)snprintf(own, sizeof(own), "underspan%crun%c--pid=%d", 0, 0, getpid());
	size_t m = (size_t)snprintf(parent, sizeof(parent), "underspan%crun%c-p%d", 0, 0,
				    getppid());

	(void)state;
	assert_true(meets(line_of(own, n + 1), line_of(own, n + 1)));
	assert_true(meets(line_of(own, n + 1), line_of(parent, m + 1)));
	assert_true(meets(line_of(own, n + 1), LINE(R)));
	assert_false(meets(line_of(own, n + 1), LINE(R "--pid=4194300")));
	assert_false(MEET(R "--pid=4194301", R "--pid=4194300"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_words),
					    cmocka_unit_test(test_long_words),
					    cmocka_unit_test(test_places),
					    cmocka_unit_test(test_trackers),
					    cmocka_unit_test(test_processes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
