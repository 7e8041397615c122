// SPDX-License-Identifier: Apache-2.0
/*
 * Upgrade statements for engines missing in the embedded engine: rows of system.columns and
 * system.tables are synthetic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "clickhouse/ddl_table.h"
#include "pipeline/sink/async_insert.h"

static const char text[] = "-- a table; of a test\n"
			   "CREATE TABLE IF NOT EXISTS ebpf_x\n(\n"
			   "    host LowCardinality(String),\n"
			   "    start_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),\n"
			   "    pairs Array(Tuple(tid UInt32, ns UInt64)) CODEC(ZSTD),\n"
			   "    weight Float32 DEFAULT 1,\n"
			   "    ms Float64 ALIAS ns / 1e6\n"
			   ")\nENGINE = MergeTree\nORDER BY host\n"
			   "SETTINGS non_replicated_deduplication_window = 10000;\n";

struct found {
	size_t n;
	char statements[8][256], what[8][256];
};

static int keep(const char *what, const char *statement, void *context)
{
	struct found *f = context;

	snprintf(f->what[f->n], sizeof(f->what[0]), "%s", what);
	snprintf(f->statements[f->n++], sizeof(f->statements[0]), "%s", statement ?: "");
	return 0;
}

static const struct live_column columns[] = {
	{ "host", "LowCardinality(String)", "", true },
	{ "start_time", "DateTime64(6, 'UTC')", "", true },
	{ "pairs", "Array(Tuple(\n    tid UInt32,\n    ns UInt64))", "", false },
	{ "weight", "Float32", "DEFAULT", false },
	{ "ms", "Float64", "ALIAS", false },
};

static struct found compare(const struct live_column *live, size_t n, const char *name,
			    const char *engine, const char *full, const char *cluster,
			    uint64_t window)
{
	struct live_table table = { name, engine, full, live, n };
	struct found f = { 0 };
	struct ddl_table wanted;
	struct why why;

	assert_int_equal(ddl_table_parse("x", text, &wanted, &why), 0);
	assert_string_equal(wanted.name, "ebpf_x");
	assert_int_equal(wanted.n_columns, 5);
	assert_string_equal(wanted.columns[2].type, "Array(Tuple(tid UInt32, ns UInt64))");
	assert_int_equal(ddl_table_compare(&wanted, &table, cluster, window, keep, &f), 0);
	ddl_table_free(&wanted);
	return f;
}

static void engines_and_their_windows(void **state)
{
	static const char good[] = "ReplicatedMergeTree('/p', '{replica}') ORDER BY host SETTINGS "
				   "replicated_deduplication_window = 10000, "
				   "replicated_deduplication_window_seconds = 604800, "
				   "replicated_deduplication_window_for_async_inserts = 10000";
	struct found f;

	(void)state;
	f = compare(columns, 5, "ebpf_x", "MergeTree",
		    "MergeTree ORDER BY host SETTINGS non_replicated_deduplication_window = 10000, "
		    "index_granularity = 8192",
		    NULL, 10000);
	assert_int_equal(f.n, 0);
	/* ClickHouse Cloud: MergeTree in the DDL is SharedMergeTree, with other settings */
	f = compare(columns, 5, "ebpf_x", "SharedMergeTree",
		    "SharedMergeTree('/p', '{replica}') ORDER BY host SETTINGS "
		    "non_replicated_deduplication_window = 10000",
		    NULL, 10000);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.statements[0],
			    "ALTER TABLE ebpf_x MODIFY SETTING replicated_deduplication_window = "
			    "10000");
	assert_string_equal(f.statements[1], "ALTER TABLE ebpf_x MODIFY SETTING "
					     "replicated_deduplication_window_seconds = 604800");
	f = compare(columns, 5, "ebpf_x_local", "ReplicatedMergeTree", good, "main", 10000);
	assert_int_equal(f.n, 0);
	f = compare(columns, 5, "ebpf_x_local", "ReplicatedMergeTree", good, "main", 120000);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.statements[0], "ALTER TABLE ebpf_x_local ON CLUSTER 'main' MODIFY "
					     "SETTING replicated_deduplication_window = 120000");
	assert_string_equal(f.statements[1],
			    "ALTER TABLE ebpf_x_local ON CLUSTER 'main' MODIFY SETTING "
			    "replicated_deduplication_window_for_async_inserts = 120000");
	f = compare(columns, 5, "ebpf_x", "Distributed", "Distributed('main', 'd', 'ebpf_x_local')",
		    "main", 120000);
	assert_int_equal(f.n, 0);
}

static void columns_of_clusters(void **state)
{
	struct found f = compare(columns + 1, 2, "ebpf_x_local", "ReplicatedMergeTree",
				 "ReplicatedMergeTree SETTINGS replicated_deduplication_window = "
				 "20000, replicated_deduplication_window_seconds = 604800",
				 "main", 10000);

	(void)state;
	assert_int_equal(f.n, 3);
	assert_string_equal(f.statements[0],
			    "ALTER TABLE ebpf_x_local ON CLUSTER 'main' ADD COLUMN IF NOT EXISTS "
			    "`host` LowCardinality(String) FIRST");
	assert_string_equal(f.statements[1],
			    "ALTER TABLE ebpf_x_local ON CLUSTER 'main' ADD COLUMN IF NOT EXISTS "
			    "`weight` Float32 DEFAULT 1 AFTER `pairs`");
	assert_string_equal(f.statements[2],
			    "ALTER TABLE ebpf_x_local ON CLUSTER 'main' ADD COLUMN IF NOT EXISTS "
			    "`ms` Float64 ALIAS ns / 1e6 AFTER `weight`");
	/* Distributed tables store no data: no codec */
	f = compare(columns + 2, 3, "ebpf_x", "Distributed", "Distributed('main', 'd', 't')",
		    "main", 10000);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.statements[1],
			    "ALTER TABLE ebpf_x ON CLUSTER 'main' ADD COLUMN IF NOT EXISTS "
			    "`start_time` DateTime64(6, 'UTC') AFTER `host`");
}

static void types_that_are_changed_and_that_are_not(void **state)
{
	struct live_column live[5];
	struct found f;
	static const char full[] = "MergeTree SETTINGS non_replicated_deduplication_window = 10000";

	(void)state;
	memcpy(live, columns, sizeof(live));
	live[3].type = "Float64"; /* wider: changed by the operator */
	f = compare(live, 5, "ebpf_x", "MergeTree", full, NULL, 10000);
	assert_int_equal(f.n, 0);
	live[3].type = "Nullable(Float32)"; /* represents more, too */
	f = compare(live, 5, "ebpf_x", "MergeTree", full, NULL, 10000);
	assert_int_equal(f.n, 0);
	live[3].type = "String";
	live[0].type = "String"; /* wide enough, and a key column */
	f = compare(live, 5, "ebpf_x", "MergeTree", full, NULL, 10000);
	assert_int_equal(f.n, 1);
	assert_string_equal(f.statements[0], "");
	assert_non_null(strstr(f.what[0], "weight is String in the database and not Float32"));
}

static void settings_are_found_by_their_whole_names(void **state)
{
	static const char full[] = "MergeTree ORDER BY x SETTINGS a = 1, "
				   "non_replicated_deduplication_window = 7, z = 2";
	uint64_t value = 0;

	(void)state;
	assert_true(ddl_setting(full, "non_replicated_deduplication_window", &value));
	assert_int_equal(value, 7);
	assert_false(ddl_setting(full, "replicated_deduplication_window", &value));
	assert_false(ddl_setting(full, "non_replicated_deduplication", &value));
	assert_false(ddl_setting("", "a", &value));
}

static void which_tables_take_asynchronous_inserts(void **state)
{
	(void)state;
	assert_null(async_insert_refusal("ReplicatedMergeTree", "23.7.1.1", false));
	assert_null(async_insert_refusal("SharedReplacingMergeTree", "26.7.1.1", false));
	assert_null(async_insert_refusal("MergeTree", "26.7.1.1", true));
	assert_non_null(async_insert_refusal("MergeTree", "26.7.1.1", false));
	assert_non_null(async_insert_refusal("ReplicatedMergeTree", "23.6.9.9", false));
	assert_non_null(async_insert_refusal("ReplicatedMergeTree", "22.12.1.1", false));
	assert_non_null(async_insert_refusal("ReplicatedMergeTree", "", false));
	assert_non_null(async_insert_refusal("Distributed", "25.1.1.1", false));
	assert_non_null(async_insert_refusal("", "25.1.1.1", false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engines_and_their_windows),
		cmocka_unit_test(columns_of_clusters),
		cmocka_unit_test(types_that_are_changed_and_that_are_not),
		cmocka_unit_test(settings_are_found_by_their_whole_names),
		cmocka_unit_test(which_tables_take_asynchronous_inserts),
	};

	return cmocka_run_group_tests_name("upgrade", tests, NULL, NULL);
}
