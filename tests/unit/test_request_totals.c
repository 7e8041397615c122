// SPDX-License-Identifier: Apache-2.0
/* Requests in memory: endpoints, the slowest, sums and listeners of synthetic rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "commands/request_parts.h"
#include "commands/requests/endpoint.h"
#include "commands/requests/totals.h"
#include "rows/row.h"

struct row {
	struct row_common common;
	uint64_t request_id, cpu, client_wait_value;
	struct column_maybe_u64 queue, gil, client_wait, queue_depth;
	uint32_t fd, netns, connection_request;
	uint16_t server_port, peer_port;
	uint8_t peer_ip[16];
	const char *method, *path, *family, *model;
	struct column_strings not_measured;
};

static const struct column columns[] = {
	COLUMN(COLUMN_U64, struct row, request_id, "request_id", "UInt64"),
	COLUMN(COLUMN_U64, struct row, cpu, "cpu_ns", "UInt64"),
	COLUMN(COLUMN_MAYBE_U64, struct row, queue, "queue_ns", ""),
	COLUMN(COLUMN_MAYBE_U64, struct row, gil, "gil_ns", ""),
	COLUMN(COLUMN_MAYBE_U64, struct row, client_wait, "client_wait_ns", ""),
	COLUMN(COLUMN_MAYBE_U64, struct row, queue_depth, "queue_depth", ""),
	COLUMN(COLUMN_U32, struct row, fd, "fd", ""),
	COLUMN(COLUMN_U32, struct row, netns, "netns", ""),
	COLUMN(COLUMN_U32, struct row, connection_request, "connection_request", ""),
	COLUMN(COLUMN_U16, struct row, server_port, "server_port", ""),
	COLUMN(COLUMN_U16, struct row, peer_port, "peer_port", ""),
	COLUMN(COLUMN_IP, struct row, peer_ip, "peer_ip", ""),
	COLUMN(COLUMN_STRING, struct row, method, "method", ""),
	COLUMN(COLUMN_STRING, struct row, path, "path", ""),
	COLUMN(COLUMN_STRING, struct row, family, "family", ""),
	COLUMN(COLUMN_STRING, struct row, model, "model", ""),
	COLUMN(COLUMN_STRINGS, struct row, not_measured, "not_measured", ""),
};
static const struct table requests = TABLE_WITH_COMMON_COLUMNS("ebpf_request", columns);
static const struct table others = TABLE_WITH_COMMON_COLUMNS("ebpf_gil_wait", columns);

static const uint64_t MS = NSEC_PER_MSEC;

/* Arrivals are counted by second of the wall clock, threads by minute. */
static uint64_t full_minute_ns(void)
{
	uint64_t ns = 3600 * NSEC_PER_SEC, us = clock_wall_us(ns);

	return ns + (60000000 - us % 60000000) * NSEC_PER_USEC;
}

/* A request of `queue_ms` and `cpu_ms`, by thread `tid`, whose bytes arrived at `at_ms`. */
static struct row request(const char *path, uint64_t at_ms, uint64_t queue_ms, uint64_t cpu_ms,
			  uint32_t tid)
{
	struct row row = {
		.common = { .host = "h", .host_pid = 7, .tid = tid, .weight = 1 },
		.cpu = cpu_ms * MS,
		.queue = { queue_ms * MS, true },
		.gil = { 0, true },
		.client_wait = { 0, true },
		.connection_request = 1,
		.server_port = 80,
		.method = "GET",
		.path = path,
		.family = "ipv4",
		.model = "thread",
	};

	row.common.start_ns = full_minute_ns() + at_ms * MS;
	row.common.duration_ns = (queue_ms + cpu_ms) * MS;
	row.common.end_ns = row.common.start_ns + row.common.duration_ns;
	return row;
}

static void add(struct request_totals *totals, struct row row)
{
	request_totals_row(totals, &requests, &row);
}

static const json_t *item(const json_t *report, const char *list, size_t i)
{
	return json_array_get(json_object_get(report, list), i);
}

static void numbers_and_ids_are_stars(void **state)
{
	static const char *const known[][2] = {
		{ "/", "/" },
		{ "", "" },
		{ "/a", "/a" },
		{ "/item/42", "/item/*" },
		{ "/item/42/", "/item/*/" },
		{ "/1/2//3", "/*/*//*" },
		{ "/v1/a2", "/v1/a2" },
		{ "/0123456789abcdef", "/*" },
		{ "/0123456789abcde", "/0123456789abcde" },
		{ "/0123456789abcdeg", "/0123456789abcdeg" },
		{ "/6ba7b810-9dad-11d1-80b4-00c04fd430C8/x", "/*/x" },
		{ "/6ba7b810-9dad-11d1-80b4-00c04fd430c", "/6ba7b810-9dad-11d1-80b4-00c04fd430c" },
		{ "*", "*" },
	};
	char text[300], small[5];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		assert_string_equal(request_endpoint(text, sizeof(text), known[i][0]), known[i][1]);
	assert_string_equal(request_endpoint(small, sizeof(small), "/abcdef"), "/abc");
	assert_string_equal(request_endpoint(small, sizeof(small), "/123/456"), "/*/*");
	assert_string_equal(request_endpoint(small, sizeof(small), "/ab/456"), "/ab/");
}

static void sums_count_weights_and_leave_null_out(void **state)
{
	static const char *const gil[] = { "gil" };
	struct request_question question = { .top = 2, .part = -1 };
	struct request_totals totals = { .question = &question };
	struct row row = request("/a/1", 0, 10, 20, 8);
	const json_t *first;
	json_t *report;

	(void)state;
	row.request_id = UINT64_MAX;
	add(&totals, row);
	row = request("/a/2", 0, 30, 40, 8);
	row.common.weight = 3;
	row.gil.known = false;
	row.not_measured = (struct column_strings){ gil, 1 };
	row.client_wait.value = 500 * MS;
	row.common.duration_ns += 500 * MS;
	add(&totals, row);
	add(&totals, request("/b", 0, 0, 25, 8));
	request_totals_row(&totals, &others, &row);
	report = request_totals_report(&totals, 10);

	assert_true(report_number(report, "requests") == 5 && report_number(report, "rows") == 3);
	assert_int_equal(json_array_size(json_object_get(report, "slowest")), 2);
	first = item(report, "slowest", 0);
	assert_string_equal(report_text(first, "path"), "/a/2");
	assert_true(json_is_null(json_object_get(first, "gil_ns")));
	assert_string_equal(report_text(item(report, "slowest", 1), "request_id"),
			    "18446744073709551615");
	first = item(report, "endpoints", 0);
	assert_string_equal(report_text(first, "endpoint"), "/a/*");
	assert_true(report_number(first, "requests") == 4);
	assert_true(report_number(first, "hidden_ns") == (double)((10 + 3 * 30) * MS));
	assert_true(report_number(first, "server_sum_ns") == (double)((30 + 3 * 70) * MS));
	assert_true(report_number(first, "server_p50_ns") == (double)(70 * MS));
	assert_true(report_number(first, "gil_unmeasured") == 3 && report_has(first, "gil_ns"));
	assert_false(report_has(first, "gc_own_ns")); /* no such column */
	first = item(report, "not_measured", 0);
	assert_string_equal(report_text(first, "reason"), "gil");
	assert_true(report_number(first, "requests") == 3);
	json_decref(report);
	request_totals_free(&totals);
}

static void the_slowest_of_many_are_kept(void **state)
{
	struct request_question question = { .top = 7, .part = -1 };
	struct request_totals totals = { .question = &question };
	json_t *report;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		add(&totals, request("/", i, 0, 1 + i * 617 % 1000, 8));
	report = request_totals_report(&totals, 10);
	for (size_t i = 0; i < 7; i++)
		assert_true(report_number(item(report, "slowest", i), "cpu_ns") ==
			    (double)((1000 - i) * MS));
	assert_true(report_number(item(report, "endpoints", 0), "server_p99_ns") ==
		    (double)(990 * MS));
	json_decref(report);
	request_totals_free(&totals);
}

static void endpoints_with_nothing_of_the_part_are_left_out(void **state)
{
	struct request_question question = { .top = 1, .part = request_part_find("queue", NULL) };
	struct request_totals totals = { .question = &question };
	struct row unknown = request("/unknown", 0, 0, 5, 8);
	json_t *report;

	(void)state;
	unknown.queue.known = false;
	add(&totals, unknown);
	add(&totals, request("/nothing", 0, 0, 900, 8));
	add(&totals, request("/some", 0, 2, 5, 8));
	report = request_totals_report(&totals, 10);
	assert_int_equal(json_array_size(json_object_get(report, "slowest")), 1);
	assert_int_equal(json_array_size(json_object_get(report, "endpoints")), 1);
	assert_string_equal(report_text(item(report, "endpoints", 0), "endpoint"), "/some");
	assert_true(report_number(report, "endpoints_total") == 2); /* and the unknown one */
	json_decref(report);
	request_totals_free(&totals);
}

static void threads_missing_in_a_burst(void **state)
{
	struct request_question question = { .top = 2, .part = -1 };
	struct request_totals totals = { .question = &question };
	const json_t *listener;
	json_t *report;
	struct row row;

	(void)state;
	for (unsigned int i = 0; i < 10; i++) /* of 2 threads */
		add(&totals, request("/", i, i * 250, 500, 8 + i % 2));
	for (unsigned int i = 0; i < 4; i++) { /* a thread per connection */
		row = request("/", i, 0, 10, 20 + i);
		row.server_port = 81;
		add(&totals, row);
	}
	row = request("/", 0, 0, 10, 30);
	row.server_port = 82;
	row.model = "loop";
	add(&totals, row);
	report = request_totals_report(&totals, 100);
	listener = item(report, "listeners", 0);
	assert_true(report_number(listener, "threads") == 2);
	assert_true(report_number(listener, "service_ms") == 500);
	assert_true(report_number(listener, "waited_ms") == 1125);
	assert_true(report_number(listener, "peak_per_second") == 10);
	assert_true(report_number(listener, "peak_missing") == 3);
	assert_true(report_number(listener, "missing") == 0.1 * 0.5 - 2);
	for (size_t i = 1; i < 3; i++) {
		assert_false(report_has(item(report, "listeners", i), "missing"));
		assert_false(report_has(item(report, "listeners", i), "peak_missing"));
	}
	json_decref(report);
	request_totals_free(&totals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_and_ids_are_stars),
		cmocka_unit_test(sums_count_weights_and_leave_null_out),
		cmocka_unit_test(the_slowest_of_many_are_kept),
		cmocka_unit_test(endpoints_with_nothing_of_the_part_are_left_out),
		cmocka_unit_test(threads_missing_in_a_burst),
	};

	clock_calibrate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
