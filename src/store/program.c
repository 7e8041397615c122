// SPDX-License-Identifier: Apache-2.0
/*
 * The engine as an installed program: one `clickhouse local --path=DIR` for each statement, one at
 * a time, since the program locks DIR. The arguments, which all users of the host can read, have
 * nothing of a client: the statement, settings and values are in a file, rows in a second one. The
 * output is a file, too, so that a slow client does not hold DIR. See engine_kind.h.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "clickhouse/statement.h"
#include "store/dialect.h"
#include "store/engine_kind.h"
#include "store/program_turns.h"

enum {
	BLOCK_BYTES = 256 << 10, /* of an output, at a time */
	OUTPUT_MEMORIES = 4,	 /* an output's limit, in max_memory_bytes */
	INSERTS_BETWEEN_MERGES = 64,
	PARAMETER_MAX = 128, /* bytes of a name */
};

struct program {
	struct engine base;
	char *directory, *path_argument, *config_argument;
	bool is_local; /* clickhouse-local: without the word "local" */
	int file, config;
	uint64_t max_output;
	struct program_turns *turns;
	atomic_uint inserts;
};

struct program_session {
	struct session base;
	char *prelude; /* USE and SET, each with its semicolon */
	size_t prelude_len;
	int output; /* of a streamed result; -1: none */
};

static struct program *program_of(const struct session *s)
{
	return (struct program *)s->engine;
}

static struct program_session *own(struct session *s)
{
	return (struct program_session *)s;
}

/* ---- a statement ---- */

/* The statement's file: the session's prelude, values of placeholders, the statement. */
static int write_sql(int fd, const struct program_session *s, struct text sql,
		     const struct engine_params *params, const char *end)
{
	AUTO_FREE char *values = NULL;
	size_t len = 0, size = 0;
	int err = program_write(fd, s->prelude ?: "", s->prelude_len);

	for (size_t i = 0; !err && i < params->n; i++) {
		char name[PARAMETER_MAX + 32];

		/* a placeholder has a plain name */
		if (!is_plain_name((struct text){ params->names[i], params->name_lens[i] }) ||
		    params->name_lens[i] > PARAMETER_MAX)
			continue;
		snprintf(name, sizeof(name), "SET param_%.*s = ", (int)params->name_lens[i],
			 params->names[i]);
		len = 0;
		if (!append_quoted(&values, &len, &size,
				   (struct text){ params->values[i], params->value_lens[i] }, '\''))
			return -ENOMEM;
		err = program_write(fd, name, strlen(name));
		err = err ?: program_write(fd, values, len);
		err = err ?: program_write(fd, ";\n", 2);
	}
	err = err ?: program_write(fd, sql.at, sql.len);
	err = err ?: program_write(fd, end, strlen(end));
	lseek(fd, 0, SEEK_SET);
	return err;
}

static void execute_files(struct program *p, const struct program_session *s,
			  struct program_run *run, const char *format, struct engine_result *ret)
{
	char sql[64], format_argument[128];
	char *arguments[] = { p->is_local ? "clickhouse-local" : "clickhouse",
			      "local",
			      p->path_argument,
			      p->config_argument,
			      sql,
			      format_argument,
			      NULL };

	if (p->is_local)
		memmove(&arguments[1], &arguments[2], sizeof(arguments) - 2 * sizeof(*arguments));
	snprintf(sql, sizeof(sql), "--queries-file=/proc/self/fd/%d", PROGRAM_SQL_FD);
	snprintf(format_argument, sizeof(format_argument), "--output-format=%.100s", format);
	run->program = p->file;
	run->config = p->config;
	run->arguments = arguments;
	program_turns_run(p->turns, run, s->base.id, p->max_output, ret);
}

/* `ret_output`: the open file with the answer, from its begin; -1 after an error. */
static void execute(struct session *session, struct text sql, const char *end, const char *format,
		    const struct engine_params *params, int rows, int *ret_output,
		    struct engine_result *ret)
{
	struct program_session *s = own(session);
	struct program *p = program_of(session);
	AUTO_CLOSE int text = program_scratch(p->directory);
	AUTO_CLOSE int errors = program_scratch(p->directory);
	int output = program_scratch(p->directory);
	struct program_run run = { .sql = text, .rows = rows, .output = output, .errors = errors };
	int err = text < 0 ? text : errors < 0 ? errors : output < 0 ? output : 0;

	err = err ?: write_sql(text, s, sql, params, end);
	if (err)
		program_fail_errno(ret, "hand over a statement", err);
	else
		execute_files(p, s, &run, format, ret);
	if (output >= 0)
		lseek(output, 0, SEEK_SET);
	if (ret->error && output >= 0) {
		close(output);
		output = -1;
	}
	*ret_output = output;
}

static void run(struct session *session, struct text sql, const char *format,
		const struct engine_params *params, struct engine_result *ret)
{
	const struct program *p = program_of(session);
	int output;

	execute(session, sql, "", format, params, -1, &output, ret);
	if (output < 0)
		return;
	if (program_size(output) > p->max_output / (2 * OUTPUT_MEMORIES))
		program_fail_large(ret, p->max_output / (2 * OUTPUT_MEMORIES));
	else
		program_read_block(output, program_size(output), ret);
	close(output);
}

static void set(struct session *session, struct text sql, struct engine_result *ret)
{
	struct program_session *s = own(session);
	size_t size = s->prelude_len + sql.len + 3;
	char *grown = realloc(s->prelude, size);

	*ret = (struct engine_result){ 0 };
	if (!grown) {
		program_fail_errno(ret, "keep settings", -ENOMEM);
		return;
	}
	s->prelude = grown;
	memcpy(grown + s->prelude_len, sql.at, sql.len);
	memcpy(grown + s->prelude_len + sql.len, ";\n", 3);
	s->prelude_len = size - 1;
}

/* The program refuses a text that does not parse when it runs. */
static bool parses(struct session *session, struct text sql)
{
	(void)session, (void)sql;
	return true;
}

static void stream_begin(struct session *session, struct text sql, const char *format,
			 const struct engine_params *params, struct engine_result *ret,
			 bool *ret_unsupported)
{
	*ret_unsupported = false;
	execute(session, sql, "", format, params, -1, &own(session)->output, ret);
}

static void stream_next(struct session *session, struct engine_result *ret)
{
	program_read_block(own(session)->output, BLOCK_BYTES, ret);
}

/* ---- INSERT ---- */

/*
 * The program merges parts of a table only while the process runs, and a short process ends before
 * a merge. Without OPTIMIZE a table would have a part for each INSERT, until the program refuses
 * further INSERTs.
 */
static void merge_parts(struct engine *engine)
{
	static const char find[] =
		"SELECT concat('OPTIMIZE TABLE `', replaceRegexpAll(database, '([`\\\\\\\\])', "
		"'\\\\\\\\\\\\1'), '`.`', replaceRegexpAll(table, '([`\\\\\\\\])', '\\\\\\\\\\\\1'), "
		"'`;') FROM system.parts WHERE active GROUP BY database, table HAVING count() >= 16";
	struct session *session = session_new(engine);
	struct engine_params none = { 0 };
	struct engine_result statements = { 0 }, done = { 0 };

	if (!session)
		return;
	run(session, (struct text){ find, strlen(find) }, "TabSeparatedRaw", &none, &statements);
	if (!statements.error && statements.bytes.len)
		run(session, statements.bytes, "Null", &none, &done);
	if (statements.error || done.error)
		log_debug("store: parts are not merged: %.400s", statements.error ?: done.error);
	engine_result_free(&statements);
	engine_result_free(&done);
	session_free(session);
}

static int write_rows(int fd, const struct text *parts, size_t n_parts)
{
	int err = fd < 0 ? fd : 0;

	for (size_t i = 0; !err && i < n_parts; i++)
		err = program_write(fd, parts[i].at, parts[i].len);
	return err;
}

/* What follows the INSERT; its clause SETTINGS, which has to stand behind FROM INFILE, is moved
 * there. */
static char *from_rows(struct text *sql, const char *format)
{
	struct statement statement;
	char *end;

	statement_parse(*sql, &statement);
	if (statement.settings.at)
		sql->len = (size_t)(statement.settings.at - sql->at);
	return asprintf(&end,
			" FROM INFILE '/proc/self/fd/%d' COMPRESSION 'none' %.*s FORMAT %.100s",
			PROGRAM_ROWS_FD, (int)statement.settings.len, statement.settings.at ?: "",
			format) < 0
		       ? NULL
		       : end;
}

static void insert(struct session *session, struct text sql, const char *format,
		   const struct engine_params *params, const struct text *parts, size_t n_parts,
		   struct engine_result *ret)
{
	AUTO_CLOSE int rows = program_scratch(program_of(session)->directory);
	AUTO_FREE char *end = NULL;
	int output, err = write_rows(rows, parts, n_parts);

	if (!err && !(end = from_rows(&sql, format)))
		err = -ENOMEM;
	if (err) {
		program_fail_errno(ret, "hand over rows", err);
		return;
	}
	lseek(rows, 0, SEEK_SET);
	if (atomic_fetch_add(&program_of(session)->inserts, 1) % INSERTS_BETWEEN_MERGES ==
	    INSERTS_BETWEEN_MERGES - 1)
		merge_parts(session->engine);
	execute(session, sql, end, "Null", params, rows, &output, ret);
	if (output >= 0)
		close(output);
}

/* ---- life ---- */

static struct session *new_session(struct engine *engine)
{
	struct program_session *s = calloc(1, sizeof(*s));

	(void)engine;
	if (!s)
		return NULL;
	s->output = -1;
	return &s->base;
}

static void free_session(struct session *session)
{
	struct program_session *s = own(session);

	if (s->output >= 0)
		close(s->output);
	free(s->prelude);
	free(s);
}

static void cancel(struct engine *engine, const char *id)
{
	program_turns_cancel(((struct program *)engine)->turns, id);
}

static void close_engine(struct engine *engine)
{
	struct program *p = (struct program *)engine;

	if (p->file >= 0)
		close(p->file);
	if (p->config >= 0)
		close(p->config);
	free(p->directory);
	free(p->path_argument);
	free(p->config_argument);
	program_turns_free(p->turns);
	free(p);
}

/* The limits that libchdb.c sets, as a configuration. */
static int write_config(int fd, uint64_t max_memory_bytes)
{
	char text[800];
	int n = snprintf(text, sizeof(text),
			 "<clickhouse><logger><level>none</level></logger>"
			 "<max_server_memory_usage>%llu</max_server_memory_usage>"
			 "<mark_cache_size>%llu</mark_cache_size>"
			 "<index_mark_cache_size>%llu</index_mark_cache_size>"
			 "<uncompressed_cache_size>0</uncompressed_cache_size>"
			 "<background_pool_size>2</background_pool_size>"
			 "<background_schedule_pool_size>4</background_schedule_pool_size>"
			 "<max_thread_pool_size>1000</max_thread_pool_size>"
			 "<max_thread_pool_free_size>16</max_thread_pool_free_size></clickhouse>\n",
			 (unsigned long long)max_memory_bytes,
			 (unsigned long long)max_memory_bytes / 16,
			 (unsigned long long)max_memory_bytes / 16);

	return fd < 0 ? fd : program_write(fd, text, (size_t)n);
}

static int make_arguments(struct program *p, const struct engine_options *o)
{
	if (asprintf(&p->path_argument, "--path=%s", o->path) < 0) {
		p->path_argument = NULL;
		return -ENOMEM;
	}
	if ((o->config ? asprintf(&p->config_argument, "--config-file=%s/%s", o->path, o->config)
		       : asprintf(&p->config_argument, "--config-file=/proc/self/fd/%d",
				  PROGRAM_CONFIG_FD)) < 0) {
		p->config_argument = NULL;
		return -ENOMEM;
	}
	p->directory = strdup(o->path);
	return p->directory ? 0 : -ENOMEM;
}

static int open_engine(const struct engine_options *o, struct engine **ret_engine, struct why *why)
{
	const char *slash = strrchr(o->engine_name, '/');
	struct program *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return why_fail(why, ENOMEM, "out of memory");
	p->base.kind = &engine_program;
	p->is_local = slash && !strcmp(slash + 1, "clickhouse-local");
	p->max_output = OUTPUT_MEMORIES * o->max_memory_bytes;
	p->config = -1;
	p->turns = program_turns_new();
	p->file = open(o->engine, O_RDONLY | O_CLOEXEC);
	err = p->file < 0 ? -errno : !p->turns ? -ENOMEM : make_arguments(p, o);
	if (!err) {
		p->config = program_scratch(p->directory);
		err = write_config(p->config, o->max_memory_bytes);
	}
	if (err) {
		close_engine(&p->base);
		return why_fail(why, -err, "cannot use %s: %s", o->engine_name, strerror(-err));
	}
	*ret_engine = &p->base;
	return 0;
}

const struct engine_kind engine_program = {
	.open = open_engine,
	.close = close_engine,
	.cancel = cancel,
	.new_session = new_session,
	.free_session = free_session,
	.set = set,
	.run = run,
	.parses = parses,
	.stream_begin = stream_begin,
	.stream_next = stream_next,
	.insert = insert,
};
