// SPDX-License-Identifier: Apache-2.0
/* The tables of spans. See insert.h. */
#include "store/otlp/insert.h"

#include <string.h>

#include "clickhouse/client.h"
#include "clickhouse/exceptions.h"
#include "clickhouse/sql_files.h"

/* Blocks by which a repeated request is recognized, per partition (a day). */
static const char deduplicate[] =
	"ALTER TABLE otel_traces MODIFY SETTING non_replicated_deduplication_window = 10000";

/*
 * Days of one request's spans: each makes a partition, of some 9 ms and 100 KiB, and an exporter
 * waits for 10 s. The engine's default is 100.
 */
#define MAX_DAYS "1000"

/* One block per request, the same for equal bytes. */
static const char settings[] =
	"SET insert_deduplicate = 1, input_format_parallel_parsing = 0, "
	"max_insert_block_size = 10000000, min_insert_block_size_rows = 10000000, "
	"min_insert_block_size_bytes = 1000000000, async_insert = 0, "
	"input_format_skip_unknown_fields = 0, max_partitions_per_insert_block = " MAX_DAYS;

/* 0 or an exception code. */
static int finish(struct engine_result *result, struct why *why)
{
	int code = 0;

	if (result->error) {
		code = clickhouse_exception_code(result->error, strlen(result->error))
			       ?: EXCEPTION_UNKNOWN_EXCEPTION;
		why_fail(why, EIO, "%.400s", result->error);
	}
	engine_result_free(result);
	return code;
}

static int run(struct session *session, const char *sql, struct why *why)
{
	struct engine_params none = { 0 };
	struct engine_result result;

	session_run(session, (struct text){ sql, strlen(sql) }, "Null", &none, &result);
	return finish(&result, why);
}

static struct session *open_session(struct engine *engine, struct why *why)
{
	struct session *session = session_new(engine);

	if (!session)
		why_fail(why, EIO, "the engine takes no session");
	return session;
}

int otlp_create_tables(struct engine *engine, struct why *why)
{
	struct session *session = open_session(engine, why);
	int code = session ? 0 : EXCEPTION_UNKNOWN_EXCEPTION;

	/* by path: tables before their view */
	for (const struct sql_file *f = sql_files; !code && f->path; f++) {
		if (!strncmp(f->path, "otel/", 5))
			code = run(session, f->text, why);
	}
	code = code ?: run(session, deduplicate, why);
	session_free(session);
	return code ? -EIO : 0;
}

int otlp_insert(struct engine *engine, struct text rows, struct why *why)
{
	static const char sql[] = "INSERT INTO otel_traces";
	struct session *session = open_session(engine, why);
	struct engine_params none = { 0 };
	struct engine_result result;
	int code = EXCEPTION_TOO_MANY_SIMULTANEOUS_QUERIES;

	if (session) {
		session_set(session, (struct text){ settings, strlen(settings) }, &result);
		code = finish(&result, why);
	}

	if (!code) {
		session_insert(session, (struct text){ sql, strlen(sql) }, "JSONEachRow", &none,
			       &rows, 1, &result);
		code = finish(&result, why);
	}
	session_free(session);
	if (code == EXCEPTION_TOO_MANY_PARTS && strstr(why->text, "single INSERT"))
		why_fail(why, EFBIG,
			 "spans of more than " MAX_DAYS
			 " days in one request: send fewer days at a "
			 "time");
	return code;
}
