// SPDX-License-Identifier: Apache-2.0
/* The calls of engine.h, each by the kind of its engine. See engine_kind.h. */
#include "store/engine_kind.h"

#include <string.h>

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
	snprintf(line, sizeof(line), "%.*s", (int)result.bytes.len, result.bytes.at ?: "");
	line[strcspn(line, "\n")] = '\0';
	tab = strchr(line, '\t');
	if (result.error || !tab) {
		err = why_fail(why, EIO, "the ClickHouse engine does not answer: %.400s",
			       result.error ?: "no version");
	} else {
		snprintf(e->timezone, sizeof(e->timezone), "%.60s", tab + 1);
		*tab = '\0';
		snprintf(e->version, sizeof(e->version), "%.60s", line);
	}
	engine_result_free(&result);
	session_free(session);
	return err;
}

int engine_open(const struct engine_options *options, struct engine **ret_engine, struct why *why)
{
	const struct engine_kind *kind = options->is_program ? &engine_program : &engine_libchdb;
	struct engine *e = NULL;
	int err = kind->open(options, &e, why);

	if (err)
		return err;
	err = ask_identity(e, why);
	if (err && options->is_program) {
		struct why first = *why;

		why_fail(why, EIO, "%.200s, 23.1 or newer is needed: %.280s", options->engine_name,
			 first.text);
	}
	if (err)
		engine_close(e);
	else
		*ret_engine = e;
	return err;
}

void engine_close(struct engine *e)
{
	if (e)
		e->kind->close(e);
}

const char *engine_version(const struct engine *e)
{
	return e->version;
}

const char *engine_timezone(const struct engine *e)
{
	return e->timezone;
}

bool engine_counts(const struct engine *e)
{
	return e->kind->counts;
}

void engine_cancel(struct engine *e, const char *id)
{
	e->kind->cancel(e, id);
}

void engine_cancel_all(struct engine *e)
{
	e->kind->cancel(e, NULL);
}

void engine_result_free(struct engine_result *result)
{
	if (result->handle)
		result->engine->kind->free_result(result);
	free(result->own);
	*result = (struct engine_result){ 0 };
}

struct session *session_new(struct engine *e)
{
	struct session *s = e->kind->new_session(e);

	if (s)
		s->engine = e;
	return s;
}

void session_free(struct session *s)
{
	if (s)
		s->engine->kind->free_session(s);
}

void session_name(struct session *s, const char *id)
{
	snprintf(s->id, sizeof(s->id), "%s", id);
}

void session_set(struct session *s, struct text sql, struct engine_result *ret_result)
{
	s->engine->kind->set(s, sql, ret_result);
}

void session_run(struct session *s, struct text sql, const char *format,
		 const struct engine_params *p, struct engine_result *ret_result)
{
	s->engine->kind->run(s, sql, format, p, ret_result);
}

bool session_parses(struct session *s, struct text sql)
{
	return s->engine->kind->parses(s, sql);
}

void session_stream_begin(struct session *s, struct text sql, const char *format,
			  const struct engine_params *p, struct engine_result *ret_result,
			  bool *ret_unsupported)
{
	s->engine->kind->stream_begin(s, sql, format, p, ret_result, ret_unsupported);
}

void session_stream_next(struct session *s, struct engine_result *ret_result)
{
	s->engine->kind->stream_next(s, ret_result);
}

void session_insert(struct session *s, struct text sql, const char *format,
		    const struct engine_params *p, const struct text *parts, size_t n_parts,
		    struct engine_result *ret_result)
{
	s->engine->kind->insert(s, sql, format, p, parts, n_parts, ret_result);
}
