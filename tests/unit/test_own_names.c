// SPDX-License-Identifier: Apache-2.0
/* The prefix of own tables and views in statements. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/util.h"
#include "clickhouse/own_names.h"
#include "clickhouse/sql_files.h"

static void test_statements(void **state)
{
	static const struct {
		const char *sql, *expected;
	} cases[] = {
		{ "SELECT * FROM ebpf_request WHERE a = 'ebpf_request'",
		  "SELECT * FROM p_ebpf_request WHERE a = 'p_ebpf_request'" },
		{ "SELECT request, r.request FROM request(from = 1) AS request JOIN request r",
		  "SELECT request, r.request FROM p_request(from = 1) AS request JOIN p_request r" },
		{ "SELECT 'request', {request:String}, kind = 'request'",
		  "SELECT 'request', {request:String}, kind = 'request'" },
		{ "SELECT ebpf_requests, my_ebpf_request FROM otel_traces, otel_traces_trace_id_ts",
		  "SELECT ebpf_requests, my_ebpf_request FROM otel_traces, otel_traces_trace_id_ts" },
		{ "CREATE VIEW IF NOT EXISTS request_time AS SELECT ebpf_agent.host FROM db.ebpf_agent",
		  "CREATE VIEW IF NOT EXISTS p_request_time AS SELECT p_ebpf_agent.host FROM "
		  "db.p_ebpf_agent" },
		{ "ENGINE = Distributed('c', 'db', 'ebpf_ena_local', rand())",
		  "ENGINE = Distributed('c', 'db', 'p_ebpf_ena_local', rand())" },
		{ "ReplicatedMergeTree('/clickhouse/{database}/ebpf_schema', 'it''s \\' ebpf_ena')",
		  "ReplicatedMergeTree('/clickhouse/{database}/p_ebpf_schema', 'it''s \\' ebpf_ena')" },
		{ "a Int8 COMMENT 'see ebpf_ena' -- ebpf_ena\n/* ebpf_ena */ startsWith(t, 'ebpf_')",
		  "a Int8 COMMENT 'see ebpf_ena' -- ebpf_ena\n/* ebpf_ena */ startsWith(t, "
		  "'p_ebpf_')" },
		{ "SELECT `ebpf_ena`, \"ebpf_ena\" FROM `request`",
		  "SELECT `p_ebpf_ena`, \"p_ebpf_ena\" FROM `p_request`" },
		{ "INSERT INTO ebpf_ena (host) FORMAT JSONEachRow\n{\"host\":\"ebpf_ena\"} ebpf_ena",
		  "INSERT INTO p_ebpf_ena (host) FORMAT JSONEachRow\n{\"host\":\"ebpf_ena\"} ebpf_ena" },
		{ "", "" },
		{ "'", "'" },
		{ "/*", "/*" },
		{ "--", "--" },
		{ "'ebpf_ena", "'ebpf_ena" },
		{ "ebpf_ena\\", "p_ebpf_ena\\" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *got = own_names_put(cases[i].sql, "p_");
		char *same = own_names_put(cases[i].sql, NULL);

		assert_string_equal(got, cases[i].expected);
		assert_string_equal(same, cases[i].sql);
		free(got);
		free(same);
	}
}

/* The program names no table in a way that is not found: what is created is what is asked. */
static void test_files_of_the_program(void **state)
{
	size_t n = 0;

	(void)state;
	for (const struct sql_file *f = sql_files; f->path; f++) {
		char *once = own_names_put(f->text, "p_"), *again;

		if (!strncmp(f->path, "tables/", 7) || !strncmp(f->path, "views/", 6)) {
			const char *base = strchr(f->path, '/') + 1;
			char name[128];

			snprintf(name, sizeof(name), " EXISTS p_%.*s", (int)strcspn(base, "."),
				 base);
			assert_non_null(strstr(once, name));
			n++;
		}
		/* a prefixed name is no own name */
		again = own_names_put(once, "p_");
		assert_string_equal(again, once);
		free(again);
		free(once);
	}
	assert_true(n > 20);
}

static void test_sentences(void **state)
{
	static const char *const pairs[][2] = {
		{ "there is no table ebpf_ena", "there is no table p_ebpf_ena" },
		{ "request is not a view", "p_request is not a view" },
		{ "the view request wasn't made for a request of ebpf_request's",
		  "the view p_request wasn't made for a request of p_ebpf_request's" },
		{ "request_time is left out: there is no table otel_traces",
		  "p_request_time is left out: there is no table otel_traces" },
		{ "p_ebpf_ena_local, `ebpf_ena_local`: ebpf_enable",
		  "p_ebpf_ena_local, `p_ebpf_ena_local`: ebpf_enable" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		char *named = own_names_put_sentence(pairs[i][0], "p_");
		char *plain = own_names_put_sentence(pairs[i][0], NULL);

		assert_string_equal(named, pairs[i][1]);
		assert_string_equal(plain, pairs[i][0]);
		free(named);
		free(plain);
	}
}

static void test_taken_off(void **state)
{
	(void)state;
	assert_string_equal(own_names_take("p_ebpf_ena_local", "p_"), "ebpf_ena_local");
	assert_string_equal(own_names_take("otel_traces", "p_"), "otel_traces");
	assert_string_equal(own_names_take("ebpf_ena", NULL), "ebpf_ena");
	assert_string_equal(own_names_take("p_other", "p_"), "p_other");
	assert_null(own_names_take("ebpf_ena", "p_"));
	assert_null(own_names_take("request", "p_"));
}

static void test_values(void **state)
{
	char *table = own_names_put_value("ebpf_ena", "p_");
	char *other = own_names_put_value("request", "p_");

	(void)state;
	assert_string_equal(table, "p_ebpf_ena");
	assert_string_equal(other, "request");
	free(table);
	free(other);
}

static void test_prefixes(void **state)
{
	char long_one[66] = "";
	const char *const bad[] = { "",	 "1a",	"a-b",	 "a b", "a`", "a'; DROP TABLE x; --",
				    "é", "a.b", long_one };
	struct why why;

	(void)state;
	memset(long_one, 'p', 65);
	assert_int_equal(own_names_check(NULL, &why), 0);
	assert_int_equal(own_names_check("prod_1_", &why), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(own_names_check(bad[i], &why), -EINVAL);
		assert_non_null(strstr(why.text, "letters, digits and underscores"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statements), cmocka_unit_test(test_files_of_the_program),
		cmocka_unit_test(test_taken_off),  cmocka_unit_test(test_values),
		cmocka_unit_test(test_prefixes),   cmocka_unit_test(test_sentences),
	};

	return cmocka_run_group_tests_name("clickhouse/own_names", tests, NULL, NULL);
}
