// SPDX-License-Identifier: Apache-2.0
/* The store's parser of statements. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/util.h"
#include "clickhouse/statement.h"

static struct statement parse(const char *sql)
{
	struct statement s;

	statement_parse((struct text){ sql, strlen(sql) }, &s);
	return s;
}

static void assert_text(struct text t, const char *expected)
{
	assert_int_equal(t.len, strlen(expected));
	assert_memory_equal(t.at, expected, t.len);
}

static void test_kinds(void **state)
{
	static const struct {
		const char *sql;
		enum statement_kind kind;
	} cases[] = {
		{ "", STATEMENT_EMPTY },
		{ " \n-- only this\n/* and /* that */ */ ;; ", STATEMENT_EMPTY },
		{ "select 1", STATEMENT_SELECT },
		{ "/* hint */ WITH x AS (SELECT 1) SELECT * FROM x", STATEMENT_SELECT },
		{ "(SELECT 1) UNION ALL (SELECT 2)", STATEMENT_SELECT },
		{ "FROM t SELECT a", STATEMENT_SELECT },
		{ "SHOW TABLES", STATEMENT_OTHER },
		{ "create table t (a UInt8) engine = Memory", STATEMENT_OTHER },
		{ "insert into t values (1)", STATEMENT_INSERT_DATA },
		{ "insert into t", STATEMENT_INSERT_DATA },
		{ "insert into t (a, b) format CSV", STATEMENT_INSERT_DATA },
		{ "insert into t select 1", STATEMENT_INSERT_SELECT },
		{ "insert into t (a) with x as (select 1) select * from x",
		  STATEMENT_INSERT_SELECT },
		{ "insert into t (select 1)", STATEMENT_INSERT_SELECT },
		{ "insert into function null('a UInt8') values (1)", STATEMENT_INSERT_DATA },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (parse(cases[i].sql).kind != cases[i].kind)
			fail_msg("%s: kind %d", cases[i].sql, parse(cases[i].sql).kind);
	}
}

static void test_settings(void **state)
{
	static const struct {
		const char *sql, *settings;
	} cases[] = {
		{ "insert into t (a) settings b = 1, c = 'x' values (1)",
		  "settings b = 1, c = 'x' " },
		{ "INSERT INTO t SETTINGS b=1 -- FORMAT TSV\nFORMAT CSV\nSETTINGS c=1",
		  "SETTINGS b=1 -- FORMAT TSV\n" },
		{ "insert into t settings b = 1", "settings b = 1" },
		{ "insert into t settings b = 1;", "settings b = 1" },
		{ "insert into settings values (1)", "" },
		{ "insert into d.settings format TSV\nsettings a = 1", "" },
		{ "insert into table settings (settings) values (1)", "" },
		{ "insert into `settings a = 1` values (1)", "" },
		{ "insert into settings settings a = 1 values (1)", "settings a = 1 " },
		{ "insert into t settings a = 1 select 1", "" },
		{ "insert into t select 1 settings a = 1", "" },
		{ "select 1 settings a = 1", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct text settings = parse(cases[i].sql).settings;

		assert_text(settings, cases[i].settings);
	}
}

static void test_reads(void **state)
{
	static const struct {
		const char *sql;
		bool reads;
	} cases[] = {
		{ "select 1", true },
		{ "/* c */ with 1 as x select x", true },
		{ "(select 1)", true },
		{ "FROM t SELECT a", true },
		{ "SHOW TABLES", true },
		{ "describe table t", true },
		{ "explain select 1", true },
		{ "exists table t", true },
		{ "select insert('ab', 1, 1, 'c')", true },
		{ "select 'INSERT INTO t'", true },
		{ "", false },
		{ "insert into t values (1)", false },
		{ "insert into function file('x') select 1", false },
		{ "with 1 as x insert into t select x", false },
		{ "with 1 as x insert/**/into function file('x') select x", false },
		{ "with x as (select 1) insert table t select * from x", false },
		{ "system stop merges", false },
		{ "kill query where 1", false },
		{ "create temporary table t (a UInt8)", false },
		{ "backup table t to File('x')", false },
		{ "parallel with insert into t values (1)", false },
		{ "select1", false },
		{ "`select` 1", false },
		{ "\xc2\xa0insert into t values (1)", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (parse(cases[i].sql).reads != cases[i].reads)
			fail_msg("%s: reads is not %d", cases[i].sql, cases[i].reads);
	}
}

static void test_insert_data(void **state)
{
	struct statement s = parse(
		"INSERT INTO t (a, `b format`) FORMAT JSONEachRow\n\n{\"a\":1}\n\n;x");

	(void)state;
	assert_text(s.sql, "INSERT INTO t (a, `b format`) ");
	assert_text(s.format, "JSONEachRow");
	/* the first line break belongs to the clause; the rest is data, including semicolons */
	assert_text(s.data, "\n{\"a\":1}\n\n;x");
	assert_false(s.many);

	s = parse("insert into t values (1, 'a;b'); ");
	assert_text(s.format, "Values");
	assert_text(s.data, " (1, 'a;b'); ");

	/* a table called format */
	s = parse("insert into format format TSV 1");
	assert_text(s.sql, "insert into format ");
	assert_text(s.format, "TSV");
	assert_text(s.data, "1");

	/* words in strings, comments and parentheses are not clauses */
	s = parse("insert into t settings x = 'format CSV' /* values */ format TSV");
	assert_text(s.format, "TSV");
	assert_text(s.data, "");
	s = parse("insert into t (values, format) select 1");
	assert_int_equal(s.kind, STATEMENT_INSERT_SELECT);
}

static void test_insert_binary_data(void **state)
{
	static const char sql[] = "insert into t format RowBinary \0\1\2'\"`";
	struct statement s;

	(void)state;
	statement_parse((struct text){ sql, sizeof(sql) - 1 }, &s);
	assert_int_equal(s.data.len, 6);
	assert_memory_equal(s.data.at, "\0\1\2'\"`", 6);
}

static void test_format(void **state)
{
	(void)state;
	assert_text(parse("select 1 format JSON").format, "JSON");
	assert_text(parse("select 1 as format from t format CSV settings a = 1;").format, "CSV");
	assert_int_equal(parse("select 'x format JSON'").format.len, 0);
	assert_int_equal(parse("select (select 1 format JSON)").format.len, 0);
	assert_text(parse("select $tag$ format JSON $tag$ format TSV").format, "TSV");
	assert_text(parse("select 1 -- format JSON\nformat XML").format, "XML");
}

static void test_many(void **state)
{
	(void)state;
	assert_true(parse("select 1; select 2").many);
	assert_false(parse("select 1;").many);
	assert_false(parse("select 1; -- end\n ;").many);
	assert_false(parse("select ';select 2'").many);
	assert_true(parse("insert into t select 1; drop table t").many);
	assert_true(parse("drop table a; drop table b").many);
	assert_text(parse("select 1 ;").sql, "select 1 ");
}

static void test_not_for_a_server(void **state)
{
	(void)state;
	assert_true(parse("select 1 into outfile '/tmp/x'").outfile);
	assert_true(parse("select 1 INTO /* */ OUTFILE '/tmp/x'").outfile);
	assert_true(parse("insert into t from infile 'x' format CSV").outfile);
	assert_false(parse("select 'into outfile'").outfile);
	assert_true(parse("insert into t select * from input('a UInt8') format CSV 1")
			    .inline_select_data);
	assert_false(parse("insert into t select 1 format CSV ").inline_select_data);
}

static void test_kills(void **state)
{
	(void)state;
	assert_true(parse("system shutdown").kills);
	assert_true(parse("SYSTEM FLUSH LOGS PARALLEL WITH SYSTEM /* */ KILL").kills);
	assert_false(parse("SYSTEM FLUSH LOGS").kills);
	assert_false(parse("SELECT 'system kill'").kills);
}

/* Truncated at every position: terminates without access out of bounds (sanitizers). */
static void test_hostile(void **state)
{
	static const char sql[] =
		"/* /* */ insert into `a``b` (\"c\\\"\") settings x='\\'' , y=$$ q $$ values $t$ ; $t";
	struct statement s;

	(void)state;
	for (size_t n = 0; n < sizeof(sql); n++) {
		char *copy = malloc(n ?: 1);

		memcpy(copy, sql, n);
		statement_parse((struct text){ copy, n }, &s);
		assert_true(s.sql.len <= n);
		assert_true(s.data.len <= n);
		statement_parse((struct text){ copy + n / 2, n - n / 2 }, &s);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_insert_data),
		cmocka_unit_test(test_insert_binary_data),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_not_for_a_server),
		cmocka_unit_test(test_kills),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests_name("store/statement", tests, NULL, NULL);
}
