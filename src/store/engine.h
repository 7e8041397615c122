/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ClickHouse engine as a library, loaded at run time: one engine a process, one session a
 * request. Sessions cost microseconds to make and share nothing but the data, so no setting,
 * current database or half-read result of one request can reach another.
 */
#ifndef UNDERSPAN_STORE_ENGINE_H
#define UNDERSPAN_STORE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

/* Bytes that belong to someone else, not NUL-terminated. */
struct text {
	const char *at;
	size_t len;
};

/*
 * Finds libchdb.so: `asked` or $UNDERSPAN_LIBCHDB if given (then nowhere else), else
 * ../lib/underspan beside the program, /usr/lib/underspan, /usr/local/lib/underspan, and
 * cache/libchdb under the program's build directory. -ENOENT with the sentence how to get it.
 */
int engine_find_library(const char *asked, char *ret_path, size_t size, struct why *why);

struct engine_options {
	const char *path;    /* the data's directory */
	const char *libchdb; /* a path that engine_find_library returned */
	uint64_t max_memory_bytes;
};

struct engine;

int engine_open(const struct engine_options *options, struct engine **ret_engine, struct why *why);
/* All sessions must be freed before. */
void engine_close(struct engine *engine);
const char *engine_version(const struct engine *engine);  /* "26.7.2.1" */
const char *engine_timezone(const struct engine *engine); /* "UTC" */
/* Asks every running query to end; they fail with code 394. */
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

/* What a statement gave, or one piece of it. */
struct engine_result {
	struct text bytes;
	const char *error; /* "Code: N. DB::Exception: ...", NULL when it went well */
	struct engine_stats stats;
	const struct engine *engine; /* the rest is the engine's */
	void *handle;
	char *own_error;
};

void engine_result_free(struct engine_result *result);

struct session;

struct session *session_new(struct engine *engine); /* NULL: out of memory, or shutting down */
void session_free(struct session *session);	    /* cancels a stream that is under way */

/* Results are filled in always; the caller frees them. */
void session_run(struct session *session, struct text sql, const char *format,
		 const struct engine_params *params, struct engine_result *ret_result);

/*
 * Whether it is a statement at all. The engine runs some texts that are none (stray bytes) without
 * a complaint and without an effect; a client must not take that for success.
 */
bool session_parses(struct session *session, struct text sql);

/*
 * A SELECT in pieces: each piece is formatted on its own, so only for formats without header and
 * footer. `ret_result->error` tells whether it began; `*ret_unsupported` that this statement must
 * be run instead (nothing was executed).
 */
void session_stream_begin(struct session *session, struct text sql, const char *format,
			  const struct engine_params *params, struct engine_result *ret_result,
			  bool *ret_unsupported);
/* The end is a piece without bytes and without error. */
void session_stream_next(struct session *session, struct engine_result *ret_result);

/* INSERT: `sql` ends before FORMAT or VALUES, the data follow in parts. */
void session_insert(struct session *session, struct text sql, const char *format,
		    const struct engine_params *params, const struct text *parts, size_t n_parts,
		    struct engine_result *ret_result);

#endif
