// SPDX-License-Identifier: Apache-2.0
/* Metrics in both formats, with hostile names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/exposition.h"

static void expect(struct exposition *e, const char *text)
{
	buffer_append(&e->to, "", 1);
	assert_string_equal(e->to.data, text);
	buffer_free(&e->to);
}

static void write_all(struct exposition *e)
{
	static const struct metric_family counter = { "cpu_seconds", METRIC_COUNTER, "seconds",
						      "CPU" };
	static const struct metric_family histogram = { "wait_seconds", METRIC_HISTOGRAM, "seconds",
							"waits" };
	static const struct metric_exemplar exemplar = { "trace_id=\"ab\"", 7000000,
							 1700000000250000000 };

	exposition_head(e, &counter);
	exposition_sample(e, "", METRIC_TIME(12000000003));
	exposition_head(e, &histogram);
	exposition_bucket(e, "port=\"80\"", 8000, 0, NULL);
	exposition_bucket(e, "port=\"80\"", 10000000, 1, &exemplar);
	exposition_bucket(e, "port=\"80\"", UINT64_MAX, 18000000000000000001U, NULL);
	exposition_sum(e, "port=\"80\"", 1, 18000000000000000001U);
	exposition_end(e);
}

static void test_text_format(void **state)
{
	struct exposition e = { 0 };

	(void)state;
	write_all(&e);
	expect(&e, "# HELP underspan_cpu_seconds_total CPU\n"
		   "# TYPE underspan_cpu_seconds_total counter\n"
		   "underspan_cpu_seconds_total 12.000000003\n"
		   "# HELP underspan_wait_seconds waits\n"
		   "# TYPE underspan_wait_seconds histogram\n"
		   "underspan_wait_seconds_bucket{port=\"80\",le=\"0.000008\"} 0\n"
		   "underspan_wait_seconds_bucket{port=\"80\",le=\"0.01\"} 1\n"
		   "underspan_wait_seconds_bucket{port=\"80\",le=\"+Inf\"} 18000000000000000001\n"
		   "underspan_wait_seconds_sum{port=\"80\"} 0.000000001\n"
		   "underspan_wait_seconds_count{port=\"80\"} 18000000000000000001\n");
}

static void test_open_metrics(void **state)
{
	struct exposition e = { .open_metrics = true };

	(void)state;
	write_all(&e);
	expect(&e, "# HELP underspan_cpu_seconds CPU\n"
		   "# TYPE underspan_cpu_seconds counter\n"
		   "# UNIT underspan_cpu_seconds seconds\n"
		   "underspan_cpu_seconds_total 12.000000003\n"
		   "# HELP underspan_wait_seconds waits\n"
		   "# TYPE underspan_wait_seconds histogram\n"
		   "# UNIT underspan_wait_seconds seconds\n"
		   "underspan_wait_seconds_bucket{port=\"80\",le=\"0.000008\"} 0\n"
		   "underspan_wait_seconds_bucket{port=\"80\",le=\"0.01\"} 1 "
		   "# {trace_id=\"ab\"} 0.007 1700000000.25\n"
		   "underspan_wait_seconds_bucket{port=\"80\",le=\"+Inf\"} 18000000000000000001\n"
		   "underspan_wait_seconds_sum{port=\"80\"} 0.000000001\n"
		   "underspan_wait_seconds_count{port=\"80\"} 18000000000000000001\n"
		   "# EOF\n");
}

static void test_labels(void **state)
{
	char labels[64] = "", small[16] = "", tiny[8] = "";

	(void)state;
	exposition_label(labels, sizeof(labels), "a", "x\"y\\z\n\033[2J\xff}");
	exposition_label(labels, sizeof(labels), "b", "\xc3\xa9");
	assert_string_equal(labels, "a=\"x\\\"y\\\\z??[2J?}\",b=\"\xc3\xa9\"");
	/* cut between characters, always closed */
	exposition_label(small, sizeof(small), "name", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
	assert_string_equal(small, "name=\"\xc3\xa9\xc3\xa9\xc3\xa9\"");
	exposition_label(small, sizeof(small), "b", "x");
	assert_string_equal(small, "name=\"\xc3\xa9\xc3\xa9\xc3\xa9\"");
	exposition_label(tiny, sizeof(tiny), "n", "\"\"\"\"");
	assert_string_equal(tiny, "n=\"\\\"\"");
	exposition_label(tiny, sizeof(tiny), "much_too_long", "x");
	assert_string_equal(tiny, "n=\"\\\"\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_format),
		cmocka_unit_test(test_open_metrics),
		cmocka_unit_test(test_labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
