/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ClickHouse engine: libchdb, loaded at run time (libchdb.c), or an installed clickhouse
 * program, one process for each statement (program.c). One engine per process, one session per
 * request. A session shares only the data with other sessions: settings, current database and
 * results are private.
 */
#ifndef UNDERSPAN_STORE_ENGINE_H
#define UNDERSPAN_STORE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "base/util.h"

struct engine_options {
	const char *path;	 /* the data's directory */
	const char *config;	 /* ClickHouse's configuration, a file in `path`; NULL: none */
	const char *engine;	 /* path from engine_find(), or of an open descriptor */
	const char *engine_name; /* path from engine_find(), for messages */
	bool is_program;
	uint64_t max_memory_bytes;
};

struct engine;

int engine_open(const struct engine_options *options, struct engine **ret_engine, struct why *why);
/* All sessions must have been freed. */
void engine_close(struct engine *engine);
const char *engine_version(const struct engine *engine);  /* "26.7.2.1" */
const char *engine_timezone(const struct engine *engine); /* "UTC" */
/* Whether results have struct engine_stats: a program does not tell. */
bool engine_counts(const struct engine *engine);
/* Cancels the running queries of sessions with this name, or all: code 394. */
void engine_cancel(struct engine *engine, const char *id);
void engine_cancel_all(struct engine *engine);

/* {name:Type} placeholders' values */
struct engine_params {
	const char **names;
	size_t *name_lens;
	const char **values;
	size_t *value_lens;
	size_t n;
};

struct engine_stats {
	uint64_t read_rows, read_bytes, written_rows, written_bytes, result_rows;
};

/* Result of a statement, or a block of a streamed result. */
struct engine_result {
	struct text bytes;
	const char *error; /* "Code: N. DB::Exception: ...", NULL: success */
	struct engine_stats stats;
	const struct engine *engine; /* private from here on */
	void *handle;
	char *own;
};

void engine_result_free(struct engine_result *result);

struct session;

struct session *session_new(struct engine *engine); /* NULL: out of memory, or shutting down */
void session_free(struct session *session);	    /* cancels an open stream */

/* The query's id, which is also the setting log_comment of what it runs. */
void session_name(struct session *session, const char *id);

/* Results are always filled in; the caller frees them. */
/* USE and SET, for what follows; an error may be told with the statement that follows. */
void session_set(struct session *session, struct text sql, struct engine_result *ret_result);
void session_run(struct session *session, struct text sql, const char *format,
		 const struct engine_params *params, struct engine_result *ret_result);

/*
 * Whether the text is a statement. The engine silently accepts some texts that are not (stray
 * bytes); the client must get an error.
 */
bool session_parses(struct session *session, struct text sql);

/*
 * Streams a SELECT block by block. Blocks are formatted separately, so only formats without header
 * and footer are possible. `ret_result->error`: the query did not start. `*ret_unsupported`:
 * nothing was executed; use session_run().
 */
void session_stream_begin(struct session *session, struct text sql, const char *format,
			  const struct engine_params *params, struct engine_result *ret_result,
			  bool *ret_unsupported);
/* A block without bytes and without error is the end. */
void session_stream_next(struct session *session, struct engine_result *ret_result);

/* INSERT: `sql` ends before FORMAT or VALUES; the data follow in chunks. */
void session_insert(struct session *session, struct text sql, const char *format,
		    const struct engine_params *params, const struct text *parts, size_t n_parts,
		    struct engine_result *ret_result);

#endif
