// SPDX-License-Identifier: Apache-2.0
/* libchdb: search, load, limits, and calls with results that can be freed in any state. See
 * engine.h. */
#include "store/engine.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "store/chdb_abi.h"

struct engine {
	void *library;
	char *path_argument, *config_argument;
	chdb_connection *keeper; /* keeps the engine running between requests */
	char version[64];
	char timezone[64];
#define X(type, name, args) type(*name) args;
	CHDB_FUNCTIONS(X)
#undef X
};

struct session {
	struct engine *engine;
	chdb_connection *connection;
	chdb_result *stream;
};

static int program_directory(char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	char *slash;

	if (n <= 0)
		return -ENOENT;
	buf[n] = '\0';
	slash = strrchr(buf, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/*
 * The script that fetches the library: the one that came with this program, so that it can be typed
 * as it is.
 */
static const char *script(char buf[PATH_MAX])
{
	static const char *const beside[] = { "../share/underspan", "../deploy", "../../deploy" };
	char directory[PATH_MAX], path[PATH_MAX + 32];
	bool known = !program_directory(directory, sizeof(directory));

	for (size_t i = 0; known && i < ARRAY_SIZE(beside); i++) {
		snprintf(path, sizeof(path), "%s/%s/libchdb.sh", directory, beside[i]);
		if (is_file(path) && realpath(path, buf))
			return buf;
	}
	return "deploy/libchdb.sh of the source tree (/usr/share/underspan/libchdb.sh of a package)";
}

static int refuse_path(const char *asked, struct why *why)
{
	char buf[PATH_MAX];
	struct stat st;

	if (stat(asked, &st))
		return why_fail(why, ENOENT,
				"no ClickHouse engine at %s: %s: leave --libchdb out for the usual "
				"places, or fetch the library by %s",
				asked, strerror(errno), script(buf));
	return why_fail(why, EINVAL,
			"no ClickHouse engine at %s: %s: name the library, as in "
			"--libchdb=DIR/libchdb.so",
			asked, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
}

/* A server of its own is worth a word, not a second engine to support. */
static bool has_clickhouse_program(void)
{
	return is_file("/usr/bin/clickhouse") || is_file("/usr/local/bin/clickhouse");
}

int engine_find_library(const char *asked, char *ret_path, size_t size, struct why *why)
{
	static const char *const beside[] = { "../lib/underspan", "cache/libchdb",
					      "../cache/libchdb" };
	static const char *const system[] = { "/usr/lib/underspan", "/usr/local/lib/underspan" };
	const char *env = getenv("UNDERSPAN_LIBCHDB");
	char directory[PATH_MAX], buf[PATH_MAX];

	if (!asked && env && *env)
		asked = env;
	if (asked) {
		if (!is_file(asked))
			return refuse_path(asked, why);
		if (snprintf(ret_path, size, "%s", asked) >= (int)size)
			return why_fail(why, ENAMETOOLONG, "the path %s is too long", asked);
		return 0;
	}
	if (program_directory(directory, sizeof(directory)) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
			if (snprintf(ret_path, size, "%s/%s/libchdb.so", directory, beside[i]) <
				    (int)size &&
			    is_file(ret_path))
				return 0;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(system); i++) {
		if (snprintf(ret_path, size, "%s/libchdb.so", system[i]) < (int)size &&
		    is_file(ret_path))
			return 0;
	}
	return why_fail(
		why, ENOENT,
		"the embedded ClickHouse engine (libchdb.so) is missing: run %s, or give its path "
		"with --libchdb=FILE%s",
		script(buf),
		has_clickhouse_program()
			? ". The installed clickhouse program is not started by underspan: start a "
			  "server yourself (23.1 or newer; Debian's own is 18.16, too old) and give "
			  "--clickhouse=http://127.0.0.1:8123"
			: "");
}

static int load(struct engine *e, const char *path, const char *name, struct why *why)
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

static chdb_connection *connect_engine(struct engine *e, char **arguments, int n)
{
	chdb_connection *c = e->chdb_connect(n, arguments);

	return c && *c ? c : NULL;
}

/*
 * The defaults are for a server: gigabytes of caches, dozens of pool threads. Here the engine runs
 * beside the measured workload.
 */
static int boot(struct engine *e, uint64_t max_memory_bytes, struct why *why)
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

static int ask_identity(struct engine *e, struct why *why)
{
	static const char sql[] = "SELECT version(), timezone()";
	struct session *session = session_new(e);
	struct engine_params none = { 0 };
	struct engine_result result;
	char line[128];
	char *tab;
	int err = 0;

	if (!session)
		return why_fail(why, ENOMEM, "out of memory");
	session_run(session, (struct text){ sql, strlen(sql) }, "TabSeparated", &none, &result);
	if (result.error) {
		err = why_fail(why, EIO, "the ClickHouse engine does not answer: %.400s",
			       result.error);
	} else {
		snprintf(line, sizeof(line), "%.*s", (int)result.bytes.len, result.bytes.at);
		line[strcspn(line, "\n")] = '\0';
		tab = strchr(line, '\t');
		snprintf(e->timezone, sizeof(e->timezone), "%.60s", tab ? tab + 1 : "UTC");
		if (tab)
			*tab = '\0';
		snprintf(e->version, sizeof(e->version), "%.60s", line);
	}
	engine_result_free(&result);
	session_free(session);
	return err;
}

int engine_open(const struct engine_options *options, struct engine **ret_engine, struct why *why)
{
	struct engine *e = calloc(1, sizeof(*e));
	int err;

	if (!e || asprintf(&e->path_argument, "--path=%s", options->path) < 0 ||
	    (options->config && asprintf(&e->config_argument, "--config-file=%s/%s", options->path,
					 options->config) < 0)) {
		free(e);
		return why_fail(why, ENOMEM, "out of memory");
	}
	err = load(e, options->libchdb, options->libchdb_name, why);
	if (!err)
		err = boot(e, options->max_memory_bytes, why);
	if (!err)
		err = ask_identity(e, why);
	if (err) {
		engine_close(e);
		return err;
	}
	*ret_engine = e;
	return 0;
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	if (e->keeper) {
		e->chdb_close_conn(e->keeper);
		e->chdb_shutdown();
	}
	/* the library stays mapped: destructors of the library's threads may still run */
	free(e->path_argument);
	free(e->config_argument);
	free(e);
}

const char *engine_version(const struct engine *e)
{
	return e->version;
}

const char *engine_timezone(const struct engine *e)
{
	return e->timezone;
}

void engine_cancel_all(struct engine *e)
{
	static const char sql[] = "KILL QUERY WHERE query NOT LIKE 'KILL QUERY%' ASYNC";
	struct session *session = session_new(e);
	struct engine_params none = { 0 };
	struct engine_result result;

	if (!session)
		return;
	session_run(session, (struct text){ sql, strlen(sql) }, "Null", &none, &result);
	engine_result_free(&result);
	session_free(session);
}

void engine_result_free(struct engine_result *result)
{
	if (result->handle)
		result->engine->chdb_destroy_query_result(result->handle);
	free(result->own_error);
	*result = (struct engine_result){ 0 };
}

static void take_result(const struct engine *e, chdb_result *handle,
			struct engine_result *ret_result)
{
	*ret_result = (struct engine_result){ .engine = e, .handle = handle };
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

struct session *session_new(struct engine *e)
{
	char *arguments[] = { "underspan", e->path_argument };
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->engine = e;
	s->connection = connect_engine(e, arguments, ARRAY_SIZE(arguments));
	if (!s->connection) {
		free(s);
		return NULL;
	}
	return s;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	if (s->stream) {
		s->engine->chdb_stream_cancel_query(*s->connection, s->stream);
		s->engine->chdb_destroy_query_result(s->stream);
	}
	s->engine->chdb_close_conn(s->connection);
	free(s);
}

void session_run(struct session *s, struct text sql, const char *format,
		 const struct engine_params *p, struct engine_result *ret_result)
{
	take_result(s->engine,
		    s->engine->chdb_query_with_params_n(*s->connection, sql.at, sql.len, format,
							strlen(format), p->names, p->name_lens,
							p->values, p->value_lens, p->n),
		    ret_result);
}

bool session_parses(struct session *s, struct text sql)
{
	struct chdb_query_analysis a = { .struct_size = sizeof(a) };

	return s->engine->chdb_classify_query_n(*s->connection, sql.at, sql.len, NULL, 0, &a) !=
		       0 ||
	       a.statement_count > 0;
}

void session_stream_begin(struct session *s, struct text sql, const char *format,
			  const struct engine_params *p, struct engine_result *ret_result,
			  bool *ret_unsupported)
{
	static const char refusal[] = "Streaming query is not supported";
	chdb_result *handle = s->engine->chdb_stream_query_with_params_n(
		*s->connection, sql.at, sql.len, format, strlen(format), p->names, p->name_lens,
		p->values, p->value_lens, p->n);
	const char *error = handle ? s->engine->chdb_result_error(handle) : NULL;

	*ret_unsupported = false;
	if (handle && (!error || !*error)) {
		*ret_result = (struct engine_result){ 0 };
		s->stream = handle;
		return;
	}
	take_result(s->engine, handle, ret_result);
	*ret_unsupported = ret_result->error && strstr(ret_result->error, refusal) != NULL;
}

void session_stream_next(struct session *s, struct engine_result *ret_result)
{
	take_result(s->engine, s->engine->chdb_stream_fetch_result(*s->connection, s->stream),
		    ret_result);
}

void session_insert(struct session *s, struct text sql, const char *format,
		    const struct engine_params *p, const struct text *parts, size_t n_parts,
		    struct engine_result *ret_result)
{
	/* the engine copies the input: pass chunks of bounded size */
	enum { PIECE = 1 << 20 };
	struct engine *e = s->engine;
	chdb_insert stream = e->chdb_stream_insert_with_params_n(
		*s->connection, sql.at, sql.len, format, strlen(format), p->names, p->name_lens,
		p->values, p->value_lens, p->n);
	const char *error = stream ? e->chdb_stream_insert_error(stream) : "out of memory";

	if (error && *error) {
		*ret_result = (struct engine_result){ .own_error = strdup(error) };
		ret_result->error = ret_result->own_error ?: "out of memory";
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
