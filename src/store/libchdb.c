// SPDX-License-Identifier: Apache-2.0
/* The engine as a library: load, limits, and calls with results that can be freed in any state. See
 * engine_kind.h. */
#include <dlfcn.h>
#include <string.h>

#include "store/chdb_abi.h"
#include "store/dialect.h"
#include "store/engine_kind.h"

struct library {
	struct engine base;
	void *library;
	char *path_argument, *config_argument;
	chdb_connection *keeper; /* keeps the engine running between requests */
#define X(type, name, args) type(*name) args;
	CHDB_FUNCTIONS(X)
#undef X
};

struct library_session {
	struct session base;
	chdb_connection *connection;
	chdb_result *stream;
};

static const struct library *library_of(const struct engine *e)
{
	return (const struct library *)e;
}

static struct library_session *own(struct session *s)
{
	return (struct library_session *)s;
}

/* `s->base.engine` is set by the caller of new_session(). */
static const struct library *of(const struct library_session *s)
{
	return library_of(s->base.engine);
}

static int load(struct library *e, const char *path, const char *name, struct why *why)
{
	const char *missing = NULL;

	e->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!e->library)
		return why_fail(why, ELIBACC, "cannot load the ClickHouse engine %s: %s", name,
				dlerror());
#define X(type, name, args)                                                                        \
	*(void **)&e->name = dlsym(e->library, #name);                                             \
	if (!e->name)                                                                              \
		missing = #name;
	CHDB_FUNCTIONS(X)
#undef X
	if (missing)
		return why_fail(
			why, ELIBBAD,
			"%s has no %s: not the version of libchdb fetched by deploy/libchdb.sh "
			"(26.7)",
			name, missing);
	return 0;
}

static chdb_connection *connect_engine(const struct library *e, char **arguments, int n)
{
	chdb_connection *c = e->chdb_connect(n, arguments);

	return c && *c ? c : NULL;
}

/*
 * The defaults are for a server: gigabytes of caches, dozens of pool threads. Here the engine runs
 * beside the measured workload.
 */
static int boot(struct library *e, uint64_t max_memory_bytes, struct why *why)
{
	char memory[64], cache[64], index_cache[64];
	int n;
	char *arguments[] = { "underspan",
			      e->path_argument,
			      memory,
			      cache,
			      index_cache,
			      "--uncompressed_cache_size=0",
			      "--background_pool_size=2",
			      "--background_schedule_pool_size=4",
			      "--max_thread_pool_size=1000",
			      "--max_thread_pool_free_size=16",
			      "--logger.level=none",
			      e->config_argument };

	n = (int)ARRAY_SIZE(arguments) - !e->config_argument;
	snprintf(memory, sizeof(memory), "--max_server_memory_usage=%llu",
		 (unsigned long long)max_memory_bytes);
	snprintf(cache, sizeof(cache), "--mark_cache_size=%llu",
		 (unsigned long long)max_memory_bytes / 16);
	snprintf(index_cache, sizeof(index_cache), "--index_mark_cache_size=%llu",
		 (unsigned long long)max_memory_bytes / 16);
	e->chdb_set_signal_handlers_enabled(0);
	e->keeper = connect_engine(e, arguments, n);
	if (!e->keeper)
		return why_fail(
			why, EIO,
			"the ClickHouse engine could not open %s; see the engine's message on "
			"stderr",
			e->path_argument + strlen("--path="));
	return 0;
}

static void close_engine(struct engine *engine)
{
	struct library *e = (struct library *)engine;

	if (e->keeper) {
		e->chdb_close_conn(e->keeper);
		e->chdb_shutdown();
	}
	/* the library stays mapped: destructors of the library's threads may still run */
	free(e->path_argument);
	free(e->config_argument);
	free(e);
}

static int open_engine(const struct engine_options *options, struct engine **ret_engine,
		       struct why *why)
{
	struct library *e = calloc(1, sizeof(*e));
	int err;

	if (!e || asprintf(&e->path_argument, "--path=%s", options->path) < 0 ||
	    (options->config && asprintf(&e->config_argument, "--config-file=%s/%s", options->path,
					 options->config) < 0)) {
		free(e);
		return why_fail(why, ENOMEM, "out of memory");
	}
	e->base.kind = &engine_libchdb;
	err = load(e, options->engine, options->engine_name, why);
	if (!err)
		err = boot(e, options->max_memory_bytes, why);
	if (err) {
		close_engine(&e->base);
		return err;
	}
	*ret_engine = &e->base;
	return 0;
}

static void free_result(struct engine_result *result)
{
	const struct library *e = library_of(result->engine);

	if (result->handle)
		e->chdb_destroy_query_result(result->handle);
}

static void take_result(const struct library *e, chdb_result *handle,
			struct engine_result *ret_result)
{
	*ret_result = (struct engine_result){ .engine = &e->base, .handle = handle };
	if (!handle) {
		ret_result->error = "Code: 241. DB::Exception: The engine has no memory for a "
				    "result. (MEMORY_LIMIT_EXCEEDED)";
		return;
	}
	ret_result->error = e->chdb_result_error(handle);
	if (ret_result->error && !*ret_result->error)
		ret_result->error = NULL;
	ret_result->bytes.at = e->chdb_result_buffer(handle);
	ret_result->bytes.len = ret_result->bytes.at ? e->chdb_result_length(handle) : 0;
	ret_result->stats = (struct engine_stats){
		.read_rows = e->chdb_result_storage_rows_read(handle),
		.read_bytes = e->chdb_result_storage_bytes_read(handle),
		.written_rows = e->chdb_result_rows_written(handle),
		.written_bytes = e->chdb_result_bytes_written(handle),
		.result_rows = e->chdb_result_rows_read(handle),
	};
}

static struct session *new_session(struct engine *engine)
{
	const struct library *e = library_of(engine);
	char *arguments[] = { "underspan", e->path_argument };
	struct library_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->connection = connect_engine(e, arguments, ARRAY_SIZE(arguments));
	if (!s->connection) {
		free(s);
		return NULL;
	}
	return &s->base;
}

static void free_session(struct session *session)
{
	struct library_session *s = own(session);
	const struct library *e = of(s);

	if (s->stream) {
		e->chdb_stream_cancel_query(*s->connection, s->stream);
		e->chdb_destroy_query_result(s->stream);
	}
	e->chdb_close_conn(s->connection);
	free(s);
}

static void run(struct session *session, struct text sql, const char *format,
		const struct engine_params *p, struct engine_result *ret_result)
{
	struct library_session *s = own(session);

	take_result(of(s),
		    of(s)->chdb_query_with_params_n(*s->connection, sql.at, sql.len, format,
						    strlen(format), p->names, p->name_lens,
						    p->values, p->value_lens, p->n),
		    ret_result);
}

static bool parses(struct session *session, struct text sql)
{
	struct library_session *s = own(session);
	struct chdb_query_analysis a = { .struct_size = sizeof(a) };

	return of(s)->chdb_classify_query_n(*s->connection, sql.at, sql.len, NULL, 0, &a) != 0 ||
	       a.statement_count > 0;
}

static void stream_begin(struct session *session, struct text sql, const char *format,
			 const struct engine_params *p, struct engine_result *ret_result,
			 bool *ret_unsupported)
{
	struct library_session *s = own(session);
	static const char refusal[] = "Streaming query is not supported";
	chdb_result *handle = of(s)->chdb_stream_query_with_params_n(
		*s->connection, sql.at, sql.len, format, strlen(format), p->names, p->name_lens,
		p->values, p->value_lens, p->n);
	const char *error = handle ? of(s)->chdb_result_error(handle) : NULL;

	*ret_unsupported = false;
	if (handle && (!error || !*error)) {
		*ret_result = (struct engine_result){ 0 };
		s->stream = handle;
		return;
	}
	take_result(of(s), handle, ret_result);
	*ret_unsupported = ret_result->error && strstr(ret_result->error, refusal) != NULL;
}

static void stream_next(struct session *session, struct engine_result *ret_result)
{
	struct library_session *s = own(session);

	take_result(of(s), of(s)->chdb_stream_fetch_result(*s->connection, s->stream), ret_result);
}

static void insert(struct session *session, struct text sql, const char *format,
		   const struct engine_params *p, const struct text *parts, size_t n_parts,
		   struct engine_result *ret_result)
{
	/* the engine copies the input: pass chunks of bounded size */
	enum { PIECE = 1 << 20 };
	struct library_session *s = own(session);
	const struct library *e = of(s);
	chdb_insert stream = e->chdb_stream_insert_with_params_n(
		*s->connection, sql.at, sql.len, format, strlen(format), p->names, p->name_lens,
		p->values, p->value_lens, p->n);
	const char *error = stream ? e->chdb_stream_insert_error(stream) : "out of memory";

	if (error && *error) {
		*ret_result = (struct engine_result){ .own = strdup(error) };
		ret_result->error = ret_result->own ?: "out of memory";
	} else {
		bool going = true;

		for (size_t i = 0; going && i < n_parts; i++) {
			for (size_t at = 0; going && at < parts[i].len; at += PIECE) {
				size_t n = parts[i].len - at;

				going = e->chdb_stream_append(stream, parts[i].at + at,
							      n < PIECE ? n : PIECE) == 0;
			}
		}
		/* after an early stop chdb_stream_done() has the reason */
		take_result(e, e->chdb_stream_done(stream), ret_result);
	}
	if (stream)
		e->chdb_destroy_insert_stream(stream);
}

static void set(struct session *session, struct text sql, struct engine_result *ret_result)
{
	static const struct engine_params none;

	run(session, sql, "Null", &none, ret_result);
}

static void run_plain(struct engine *engine, const char *sql)
{
	struct session *session = session_new(engine);
	struct engine_result result;

	if (!session)
		return;
	set(session, (struct text){ sql, strlen(sql) }, &result);
	engine_result_free(&result);
	session_free(session);
}

static void cancel(struct engine *engine, const char *id)
{
	AUTO_FREE char *quoted = NULL, *sql = NULL;
	size_t len = 0, size = 0;

	if (!id)
		run_plain(engine, "KILL QUERY WHERE query NOT LIKE 'KILL QUERY%' ASYNC");
	else if (append_quoted(&quoted, &len, &size, (struct text){ id, strlen(id) }, '\'') &&
		 asprintf(&sql, "KILL QUERY WHERE Settings['log_comment'] = %s ASYNC", quoted) > 0)
		run_plain(engine, sql);
}

const struct engine_kind engine_libchdb = {
	.open = open_engine,
	.close = close_engine,
	.cancel = cancel,
	.free_result = free_result,
	.new_session = new_session,
	.free_session = free_session,
	.set = set,
	.run = run,
	.parses = parses,
	.stream_begin = stream_begin,
	.stream_next = stream_next,
	.insert = insert,
	.counts = true,
};
