// SPDX-License-Identifier: Apache-2.0
/* URL parameters and headers of a query, as ClickHouse names them. See parameters.h. */
#include "store/parameters.h"

#include <string.h>
#include <strings.h>

#include "base/random.h"

enum { MAX_VALUES = 256 };

struct reading {
	struct parameters *p;
	struct MHD_Connection *connection;
};

bool text_is(struct text t, const char *s)
{
	return t.len == strlen(s) && !memcmp(t.at, s, t.len);
}

static bool is_true(struct text t)
{
	return text_is(t, "1") || (t.len == 4 && !strncasecmp(t.at, "true", 4));
}

static bool is_setting_name(struct text t)
{
	for (size_t i = 0; i < t.len; i++) {
		char c = t.at[i];

		if (!is_plain_name((struct text){ &c, 1 }) && c != '.')
			return false;
	}
	return t.len > 0;
}

static bool append(struct parameters *p, const char *s)
{
	size_t n = strlen(s);

	if (p->settings_len + n + 1 > p->settings_size) {
		size_t size = (p->settings_len + n + 1) * 2;
		char *grown = realloc(p->settings, size);

		if (!grown)
			return false;
		p->settings = grown;
		p->settings_size = size;
	}
	memcpy(p->settings + p->settings_len, s, n + 1);
	p->settings_len += n;
	return true;
}

static void add_setting(struct parameters *p, struct text name, struct text value)
{
	if (!is_setting_name(name)) {
		set_failure(&p->failure, EXCEPTION_UNKNOWN_SETTING, "Unknown setting '%.*s'",
			    (int)(name.len < 100 ? name.len : 100), name.at);
		return;
	}
	if (!append(p, p->settings_len ? ", " : "SET ") ||
	    !append_quoted(&p->settings, &p->settings_len, &p->settings_size, name, '`') ||
	    !append(p, " = ") ||
	    !append_quoted(&p->settings, &p->settings_len, &p->settings_size, value, '\''))
		set_failure(&p->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
}

static void add_value(struct parameters *p, struct text name, struct text value)
{
	struct engine_params *v = &p->values;

	if (v->n == MAX_VALUES) {
		set_failure(&p->failure, EXCEPTION_BAD_ARGUMENTS, "Over %d query parameters",
			    MAX_VALUES);
		return;
	}
	v->names[v->n] = name.at;
	v->name_lens[v->n] = name.len;
	v->values[v->n] = value.at;
	v->value_lens[v->n] = value.len;
	v->n++;
}

/* Parameters of ClickHouse's HTTP interface that are ignored: the store has no
 * persistent sessions. */
static bool is_tolerated(struct text name)
{
	static const char *const names[] = { "user",	      "password",
					     "session_id",    "session_timeout",
					     "session_check", "close_session",
					     "buffer_size",   "stacktrace",
					     "quota_key",     "client_protocol_version" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (text_is(name, names[i]))
			return true;
	}
	return false;
}

/* Parameters that are neither settings nor placeholder values. */
static bool take_own(struct parameters *p, struct text name, struct text value)
{
	struct {
		const char *name;
		struct text *target;
	} texts[] = {
		{ "query", &p->sql },
		{ "database", &p->database },
		{ "default_format", &p->default_format },
		{ "query_id", &p->query_id },
		{ "readonly", &p->readonly },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (text_is(name, texts[i].name)) {
			*texts[i].target = value;
			return true;
		}
	}
	if (text_is(name, "wait_end_of_query")) {
		p->wait_end = is_true(value);
		return true;
	}
	if (text_is(name, "role") || text_is(name, "roles")) {
		set_failure(&p->failure, EXCEPTION_SET_NON_GRANTED_ROLE,
			    "Role should be granted to set as a current; this store has no roles");
		return true;
	}
	if (text_is(name, "compress") || text_is(name, "decompress")) {
		if (is_true(value))
			set_failure(
				&p->failure, EXCEPTION_NOT_IMPLEMENTED,
				"%.*s=1 (ClickHouse's own compressed blocks) is not supported by this "
				"store; use HTTP compression: Content-Encoding: gzip, or "
				"enable_http_compression=1 with Accept-Encoding: gzip",
				(int)name.len, name.at);
		return true;
	}
	return is_tolerated(name);
}

static enum MHD_Result take_parameter(void *cls, enum MHD_ValueKind kind, const char *key,
				      size_t key_len, const char *text, size_t text_len)
{
	struct text name = { key, key_len };
	struct text value = { text ?: "", text ? text_len : 0 };
	struct parameters *p = cls;

	(void)kind;
	if (name.len > 6 && !memcmp(name.at, "param_", 6)) {
		add_value(p, (struct text){ name.at + 6, name.len - 6 }, value);
	} else if (!take_own(p, name, value)) {
		if (text_is(name, "enable_http_compression"))
			p->gzip = is_true(value);
		add_setting(p, name, value);
	}
	return p->failure.code ? MHD_NO : MHD_YES;
}

static struct text header(struct MHD_Connection *connection, const char *name)
{
	const char *v = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);

	return (struct text){ v ?: "", v ? strlen(v) : 0 };
}

/* Whether an Accept-Encoding accepts gzip (q=0 does not). */
static bool accepts_gzip(const char *accept)
{
	const char *p = strcasestr(accept, "gzip");

	return p && strncmp(p + 4, ";q=0", 4) != 0;
}

/*
 * The client's query_id if valid in a header, otherwise a generated UUID. The engine assigns its
 * own id, so running queries are found by log_comment.
 */
static void take_id(struct parameters *p)
{
	bool clean = p->query_id.len > 0 && p->query_id.len < sizeof(p->id);
	char hex[33];

	for (size_t i = 0; clean && i < p->query_id.len; i++)
		clean = p->query_id.at[i] >= ' ' && p->query_id.at[i] <= '~';
	random_hex(hex, 32);
	if (clean)
		snprintf(p->id, sizeof(p->id), "%.*s", (int)p->query_id.len, p->query_id.at);
	else
		snprintf(p->id, sizeof(p->id), "%.8s-%.4s-4%.3s-a%.3s-%.12s", hex, hex + 8,
			 hex + 13, hex + 17, hex + 20);
	add_setting(p, (struct text){ "log_comment", 11 }, (struct text){ p->id, strlen(p->id) });
}

/*
 * The engine compiles the expressions of a question that is asked for the fourth time. This takes
 * seconds for the views of this project, and the questions are not faster then: not an hour of
 * 500 requests per second either. A client may turn it on again.
 */
static void leave_expressions_uncompiled(struct parameters *p)
{
	static const char *const names[] = { "compile_expressions", "compile_aggregate_expressions",
					     "compile_sort_description" };
	static const struct text no = { "0", 1 };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		add_setting(p, (struct text){ names[i], strlen(names[i]) }, no);
}

/*
 * The engine accepts many spellings of a number (00, +0, 0x0). Here readonly is 0, 1 or 2; a
 * read-only request may not use 0. Must be the last setting: after readonly=1 the engine refuses
 * further settings.
 */
static void take_readonly(struct parameters *p, bool read_only)
{
	static const char *const values[] = { "0", "1", "2" };
	size_t value = read_only ? 2 : 0;

	if (p->readonly.at) {
		for (value = 0; value < 3 && !text_is(p->readonly, values[value]);)
			value++;
		if (value == 3) {
			set_failure(&p->failure, EXCEPTION_BAD_ARGUMENTS,
				    "readonly is 0, 1 or 2 for this store");
			return;
		}
	}
	if (read_only && !value)
		value = 2;
	p->reads_only = value > 0;
	if (value)
		add_setting(p, (struct text){ "readonly", 8 }, (struct text){ values[value], 1 });
}

void parameters_read(struct parameters *p, struct MHD_Connection *connection, bool read_only)
{
	struct engine_params *v = &p->values;

	*p = (struct parameters){ 0 };
	v->names = calloc(MAX_VALUES, sizeof(*v->names));
	v->name_lens = calloc(MAX_VALUES, sizeof(*v->name_lens));
	v->values = calloc(MAX_VALUES, sizeof(*v->values));
	v->value_lens = calloc(MAX_VALUES, sizeof(*v->value_lens));
	if (!v->names || !v->name_lens || !v->values || !v->value_lens) {
		set_failure(&p->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
		return;
	}
	leave_expressions_uncompiled(p);
	MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, take_parameter, p);
	take_id(p);
	if (p->failure.code)
		return;
	if (!p->database.len)
		p->database = header(connection, "X-ClickHouse-Database");
	if (!p->default_format.len)
		p->default_format = header(connection, "X-ClickHouse-Format");
	if (!p->default_format.len)
		p->default_format = (struct text){ "TabSeparated", 12 };
	p->gzip = p->gzip && accepts_gzip(header(connection, "Accept-Encoding").at);
	take_readonly(p, read_only);
}

void parameters_free(struct parameters *p)
{
	free(p->values.names);
	free(p->values.name_lens);
	free(p->values.values);
	free(p->values.value_lens);
	free(p->settings);
}
