// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of another version: the statement in a spool file, a server's errors about columns, and
 * rows of system.tables and system.columns.
 */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "clickhouse/ddl_table.h"
#include "base/log.h"
#include "pipeline/sink/columns.h"

static const char ddl[] = "CREATE TABLE IF NOT EXISTS ebpf_x\n(\n"
			  "    host LowCardinality(String),\n"
			  "    n UInt32 CODEC(ZSTD),\n"
			  "    ms Float64 ALIAS n / 1e6\n"
			  ")\nENGINE = MergeTree\nORDER BY host;\n";

static int on_difference(const char *what, const char *statement, void *context)
{
	(void)context;
	MUST(*what && (!statement || !strncmp(statement, "ALTER TABLE ", 12)));
	return 0;
}

static void compare(const char *first, const char *second)
{
	const struct live_column columns[] = { { "host", first, "", true },
					       { "n", second, "", false },
					       { "ms", first, second, false } };
	struct live_table live = { "ebpf_x", "MergeTree", first, columns, 3 };
	struct ddl_table wanted, other;
	uint64_t value;

	MUST(!ddl_table_parse("x", ddl, &wanted, NULL));
	MUST(!ddl_table_compare(&wanted, &live, "c", 10000, on_difference, NULL));
	ddl_table_free(&wanted);
	if (!ddl_table_parse("y", first, &other, NULL))
		ddl_table_free(&other);
	ddl_setting(first, "non_replicated_deduplication_window", &value);
}

/* The statement sent has no additional column and the same end. */
static void rewrite(struct clickhouse_client *client, const char *insert, const char *message)
{
	struct known_columns *known = known_columns_new();
	struct clickhouse_reply reply = { .exception_code = 16 };
	char *statement = NULL;
	const char *rest;
	size_t left_out;

	MUST(known);
	snprintf(reply.message, sizeof(reply.message), "%s", message);
	for (int i = 0; i < 3; i++)
		known_columns_learn(known, client, insert, &reply);
	MUST(!known_columns_statement(known, client, insert, &statement, &left_out));
	if (statement) {
		MUST(left_out && strlen(statement) <= 2 * strlen(insert));
		rest = strchr(strchr(insert, '('), ')');
		MUST(strlen(statement) > strlen(rest));
		MUST(!strcmp(statement + strlen(statement) - strlen(rest), rest));
	}
	free(statement);
	known_columns_free(known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct clickhouse_client *client;
	static const struct clickhouse_endpoint nobody = { .url = "http://127.0.0.1:1" };
	char *text = malloc(size + 2);
	const char *second;

	MUST(text);
	if (!client) {
		log_set_level(LOG_LEVEL_NONE);
		MUST(!clickhouse_client_new(&nobody, &client, NULL));
	}
	memcpy(text, data, size);
	text[size] = text[size + 1] = '\0';
	second = text + strlen(text) + 1;
	rewrite(client, text, size > strlen(text) ? second : "");
	compare(text, size > strlen(text) ? second : "");
	free(text);
	return 0;
}
