// SPDX-License-Identifier: Apache-2.0
/* The ClickHouse client's pure parts: URLs, names, exception codes, DDL for clusters. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "clickhouse/client.h"
#include "clickhouse/ddl.h"
#include "commands/database.h"

static void test_urls(void **state)
{
	struct why why;

	(void)state;
	assert_int_equal(clickhouse_check_url("http://127.0.0.1:8123", &why), 0);
	assert_int_equal(clickhouse_check_url("https://[::1]:8443/prefix/", &why), 0);
	for (const char *const *bad =
		     (const char *const[]){ "", "127.0.0.1", "ftp://host/", "file:///etc/passwd",
					    "http://", "tcp://h:9000", "http://h/#x", "http://h:0",
					    "https://[::1]:00/prefix", NULL };
	     *bad; bad++) {
		if (clickhouse_check_url(*bad, &why) != -EINVAL)
			fail_msg("'%s' was taken", *bad);
	}
	/* refused, and not repeated in the message */
	for (const char *const *secret =
		     (const char *const[]){ "http://user:s3cret@h:8123/",
					    "https://h/?password=s3cret",
					    "http://u:s3cret@h:notaport", NULL };
	     *secret; secret++) {
		assert_int_equal(clickhouse_check_url(*secret, &why), -EINVAL);
		assert_null(strstr(why.text, "s3cret"));
	}
}

static void test_control_characters(void **state)
{
	struct clickhouse_endpoint e = { .url = "http://127.0.0.1:1",
					 .password = "a\r\nX-Evil: 1" };
	struct clickhouse_client *client;
	struct why why;

	(void)state;
	assert_int_equal(clickhouse_client_new(&e, &client, &why), -EINVAL);
	assert_null(strstr(why.text, "Evil"));
}

static void test_values(void **state)
{
	static const char *const cases[][2] = {
		{ "", "" },
		{ "tnr", "tnr" },
		{ "a\tb\nc\rd\\e", "a\\tb\\nc\\rd\\\\e" },
		{ "\\N", "\\\\N" }, /* not NULL */
		{ "'\xff\x1b", "'\xff\x1b" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		AUTO_FREE char *escaped = clickhouse_escape_value(cases[i][0]);

		assert_string_equal(escaped, cases[i][1]);
	}
}

static void test_exception_code(void **state)
{
	static const struct {
		const char *body;
		int code;
	} cases[] = {
		{ "Code: 60. DB::Exception: Table default.t does not exist. (UNKNOWN_TABLE)", 60 },
		{ "Code: 252, e.displayText() = DB::Exception: Too many parts", 252 },
		{ "Code: 1002. x", 1002 },
		{ "Code: ", 0 },
		{ "Code: 60", 0 },
		{ "Code: x. DB", 0 },
		{ "Code: 99999999999999999. DB", 0 },
		{ " Code: 60. DB", 0 },
		{ "1\nCode: 60. DB", 0 },
		{ "", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(clickhouse_exception_code(cases[i].body, strlen(cases[i].body)),
				 cases[i].code);
}

static void test_quote_name(void **state)
{
	char buf[16];

	(void)state;
	assert_true(clickhouse_quote_name("otel", buf, sizeof(buf)));
	assert_string_equal(buf, "`otel`");
	assert_true(clickhouse_quote_name("a`b\\", buf, sizeof(buf)));
	assert_string_equal(buf, "`a\\`b\\\\`");
	assert_false(clickhouse_quote_name("a_name_too_long_for_it", buf, sizeof(buf)));
}

static void test_target_usage(void **state)
{
	struct clickhouse_config both = { .clickhouse = "http://h", .store = "/tmp/x" };
	struct clickhouse_config none = { 0 };
	struct clickhouse_target target;
	struct why why;

	(void)state;
	assert_int_equal(clickhouse_resolve(&both, &target, &why), -EINVAL);
	assert_int_equal(clickhouse_resolve(&none, &target, &why), -EINVAL);
	assert_non_null(strstr(why.text, "--store=DIR"));
}

static const char table_sql[] = "-- a comment; with 'one quote\n"
				"CREATE TABLE IF NOT EXISTS ebpf_x (\n"
				"    host LowCardinality(String), -- ENGINE = Memory\n"
				"    a String DEFAULT ';'\n"
				") ENGINE = ReplacingMergeTree(a)\n"
				"ORDER BY a SETTINGS index_granularity = 8192;\n";

static void test_ddl_single(void **state)
{
	struct ddl ddl;
	struct why why;

	(void)state;
	assert_int_equal(ddl_make("tables/x.sql", table_sql, NULL, &ddl, &why), 0);
	assert_int_equal(strncmp(ddl.statements[0], "-- a comment", 12), 0);
	assert_string_equal(ddl.statements[0] + strlen(ddl.statements[0]) - 4, "8192");
	assert_null(ddl.statements[1]);
	ddl_free(&ddl);
	/* replicas have separate settings */
	assert_int_equal(
		ddl_make("tables/x.sql",
			 "CREATE TABLE IF NOT EXISTS ebpf_x (a Int8) ENGINE = MergeTree ORDER BY a "
			 "SETTINGS non_replicated_deduplication_window = 10000;",
			 "main", &ddl, &why),
		0);
	assert_null(strstr(ddl.statements[0], "non_replicated"));
	assert_non_null(strstr(ddl.statements[0], " replicated_deduplication_window = 10000, "));
	assert_non_null(strstr(ddl.statements[0], "_window_seconds = 604800, "));
	ddl_free(&ddl);
}

static void test_ddl_cluster(void **state)
{
	struct ddl ddl;
	struct why why;

	(void)state;
	assert_int_equal(ddl_make("tables/x.sql", table_sql, "main", &ddl, &why), 0);
	assert_non_null(strstr(ddl.statements[0],
			       "CREATE TABLE IF NOT EXISTS ebpf_x_local ON CLUSTER 'main' (\n"));
	assert_non_null(strstr(ddl.statements[0],
			       "ENGINE = ReplicatedReplacingMergeTree("
			       "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}', a)\n"
			       "ORDER BY a"));
	assert_string_equal(ddl.statements[1],
			    "CREATE TABLE IF NOT EXISTS ebpf_x ON CLUSTER 'main' AS ebpf_x_local\n"
			    "ENGINE = Distributed('main', currentDatabase(), 'ebpf_x_local', "
			    "cityHash64(host))");
	ddl_free(&ddl);
	assert_int_equal(ddl_make("views/v.sql", "CREATE OR REPLACE VIEW v AS SELECT 1;", "main",
				  &ddl, &why),
			 0);
	assert_string_equal(ddl.statements[0],
			    "CREATE OR REPLACE VIEW v ON CLUSTER 'main' AS SELECT 1");
	ddl_free(&ddl);
	assert_int_equal(ddl_make("tables/x.sql", table_sql, "a' (x", &ddl, &why), -EINVAL);
}

static void test_ddl_refusals(void **state)
{
	struct ddl ddl;
	struct why why;

	(void)state;
	for (const char *const *bad =
		     (const char *const[]){
			     "", "CREATE TABLE IF NOT EXISTS t (a UInt8) ENGINE = Memory",
			     "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a;",
			     "CREATE TABLE IF NOT EXISTS t (a UInt8) ENGINE = MergeTree ORDER BY a; DROP "
			     "TABLE u;",
			     "CREATE TABLE IF NOT EXISTS t (a UInt8) ENGINE = Memory;",
			     "CREATE TABLE IF NOT EXISTS (a UInt8) ENGINE = MergeTree;", NULL };
	     *bad; bad++) {
		if (ddl_make("x.sql", *bad, "c", &ddl, &why) != -EINVAL)
			fail_msg("taken: %s", *bad);
	}
	assert_true(ddl_mentions("SELECT * FROM otel_traces AS t", "otel_traces"));
	assert_false(ddl_mentions("SELECT 1 -- otel_traces\nFROM otel_traces_trace_id_ts",
				  "otel_traces"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_urls),	     cmocka_unit_test(test_control_characters),
		cmocka_unit_test(test_values),	     cmocka_unit_test(test_exception_code),
		cmocka_unit_test(test_quote_name),   cmocka_unit_test(test_target_usage),
		cmocka_unit_test(test_ddl_single),   cmocka_unit_test(test_ddl_cluster),
		cmocka_unit_test(test_ddl_refusals),
	};

	return cmocka_run_group_tests_name("clickhouse", tests, NULL, NULL);
}
