// SPDX-License-Identifier: Apache-2.0
/* ClickHouse over libcurl: clients, queries and inserts. See client.h. */
#include "clickhouse/client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <string.h>

#include "clickhouse/exceptions.h"
#include "base/random.h"
#include "clickhouse/http_post.h"
#include "clickhouse/own_names.h"
#include "clickhouse/statement.h"

enum { MAX_TEXT_BYTES = 64 << 20, MAX_PARAMS = 64 };

static bool is_header_safe(const char *s)
{
	for (; *s; s++) {
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	}
	return true;
}

static int add_credential(struct clickhouse_client *c, const char *header, const char *value)
{
	AUTO_FREE char *line = NULL;
	struct curl_slist *list;

	/* "Header;" makes libcurl send an empty header */
	if (asprintf(&line, *value ? "%s: %s" : "%s;", header, value) < 0)
		return -ENOMEM;
	list = curl_slist_append(c->credentials, line);
	explicit_bzero(line, strlen(line));
	if (!list)
		return -ENOMEM;
	c->credentials = list;
	return 0;
}

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int copy_endpoint(struct clickhouse_client *c, const struct clickhouse_endpoint *e)
{
	c->url = strdup(e->url);
	c->unix_socket = e->unix_socket ? strdup(e->unix_socket) : NULL;
	c->database = strdup(e->database ?: "default");
	c->table_prefix = e->table_prefix ? strdup(e->table_prefix) : NULL;
	c->ca_file = e->ca_file ? strdup(e->ca_file) : NULL;
	c->cert_file = e->cert_file ? strdup(e->cert_file) : NULL;
	c->key_file = e->key_file ? strdup(e->key_file) : NULL;
	c->connect_timeout_ns = e->connect_timeout_ns ?: 5 * NSEC_PER_SEC;
	c->patient = e->patient;
	c->stall_timeout_ns = e->stall_timeout_ns ?: (e->patient ? 0 : 30 * NSEC_PER_SEC);
	c->timeout_ns = e->timeout_ns ?: (e->patient ? 0 : 300 * NSEC_PER_SEC);
	c->give_up = e->give_up;
	if (!c->url || !c->database || (e->unix_socket && !c->unix_socket) ||
	    (e->table_prefix && !c->table_prefix) || (e->ca_file && !c->ca_file) ||
	    (e->cert_file && !c->cert_file) || (e->key_file && !c->key_file) ||
	    add_credential(c, "X-ClickHouse-User", e->user ?: "default") ||
	    (e->password && add_credential(c, "X-ClickHouse-Key", e->password)))
		return -ENOMEM;
	/* the path's slash is added below */
	for (size_t n = strlen(c->url); n && c->url[n - 1] == '/'; n--)
		c->url[n - 1] = '\0';
	return 0;
}

int clickhouse_client_new(const struct clickhouse_endpoint *e,
			  struct clickhouse_client **ret_client, struct why *why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct clickhouse_client *c;
	int err;

	pthread_once(&once, init_curl);
	err = clickhouse_check_url(e->url, why);
	if (err)
		return err;
	if ((e->user && !is_header_safe(e->user)) || (e->password && !is_header_safe(e->password)))
		return why_fail(why, EINVAL,
				"clickhouse: user and password may not hold control characters");
	c = calloc(1, sizeof(*c));
	if (!c || copy_endpoint(c, e) || !(c->connections = http_connections())) {
		clickhouse_client_free(c);
		return why_fail(why, ENOMEM, "out of memory");
	}
	*ret_client = c;
	return 0;
}

void clickhouse_client_free(struct clickhouse_client *c)
{
	if (!c)
		return;
	for (struct curl_slist *l = c->credentials; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(c->credentials);
	curl_share_cleanup(c->connections);
	free(c->url);
	free(c->unix_socket);
	free(c->database);
	free(c->table_prefix);
	free(c->ca_file);
	free(c->cert_file);
	free(c->key_file);
	free(c);
}

const char *clickhouse_client_table_prefix(const struct clickhouse_client *c)
{
	return c->table_prefix;
}

const char *clickhouse_client_url(const struct clickhouse_client *c)
{
	return c->url;
}

const char *clickhouse_client_query_id(const struct clickhouse_client *c)
{
	return c->query_id;
}

void clickhouse_client_disconnect(struct clickhouse_client *c)
{
	CURLSH *fresh = http_connections();

	if (!fresh)
		return;
	curl_share_cleanup(c->connections);
	c->connections = fresh;
}

void clickhouse_client_cancel(struct clickhouse_client *c)
{
	atomic_store(&c->cancelled, true);
}

bool clickhouse_quote_name(const char *name, char *buf, size_t size)
{
	size_t n = 0;

	if (size < 3)
		return false;
	buf[n++] = '`';
	for (; *name; name++) {
		if (n + 4 > size)
			return false;
		if (*name == '`' || *name == '\\')
			buf[n++] = '\\';
		buf[n++] = *name;
	}
	buf[n++] = '`';
	buf[n] = '\0';
	return true;
}

char *clickhouse_escape_value(const char *value)
{
	static const char special[] = "\\\t\n\r", letters[] = "\\tnr";
	char *escaped = malloc(2 * strlen(value) + 1), *to = escaped;

	if (!escaped)
		return NULL;
	for (; *value; value++) {
		const char *found = strchr(special, *value);

		if (found)
			*to++ = '\\';
		*to++ = found ? letters[found - special] : *value;
	}
	*to = '\0';
	return escaped;
}

static bool add_parameter(char **url, const char *name, const char *value)
{
	char *escaped_name = curl_easy_escape(NULL, name, 0);
	char *escaped = *value ? curl_easy_escape(NULL, value, 0) : NULL;
	char *longer = NULL;

	if (escaped_name && (escaped || !*value) &&
	    asprintf(&longer, "%s%c%s=%s", *url, strchr(*url, '?') ? '&' : '?', escaped_name,
		     escaped ?: "") < 0)
		longer = NULL;
	curl_free(escaped_name);
	curl_free(escaped);
	if (!longer)
		return false;
	free(*url);
	*url = longer;
	return true;
}

/* A placeholder's value is escaped; other parameters are taken literally. */
static bool add_given(struct clickhouse_client *c, char **url, const struct clickhouse_param *param)
{
	AUTO_FREE char *escaped = NULL, *named = NULL;

	if (strncmp(param->name, "param_", 6) != 0)
		return add_parameter(url, param->name, param->value);
	named = own_names_put_value(param->value, c->table_prefix);
	escaped = named ? clickhouse_escape_value(named) : NULL;
	return escaped && add_parameter(url, param->name, escaped);
}

static bool make_url(struct clickhouse_client *c, const char *insert_sql, const char *format,
		     const struct clickhouse_param *params, char **ret_url)
{
	char *url = NULL;
	bool ok = asprintf(&url, "%s/", c->url) > 0;

	if (!ok)
		return false;
	ok = add_parameter(&url, "database", c->database);
	if (ok && format)
		ok = add_parameter(&url, "default_format", format);
	for (; ok && params && params->name; params++)
		ok = add_given(c, &url, params);
	if (ok && insert_sql)
		ok = add_parameter(&url, "query", insert_sql);
	if (ok)
		*ret_url = url;
	else
		free(url);
	return ok;
}

/* Headers with credentials and, for a body, its headers; the caller frees the list. */
static struct curl_slist *make_headers(struct clickhouse_client *c, bool gzipped)
{
	struct curl_slist *list = NULL;

	for (struct curl_slist *l = c->credentials; l; l = l->next) {
		struct curl_slist *longer = curl_slist_append(list, l->data);

		if (!longer)
			goto fail;
		list = longer;
	}
	/* without waiting for "100 Continue"; the body is not a form */
	for (const char *const *h =
		     (const char *const[]){ "Expect:", "Content-Type: text/plain",
					    gzipped ? "Content-Encoding: gzip" : NULL, NULL };
	     *h; h++) {
		struct curl_slist *longer = curl_slist_append(list, *h);

		if (!longer)
			goto fail;
		list = longer;
	}
	return list;
fail:
	curl_slist_free_all(list);
	return NULL;
}

/* `insert_sql` NULL: the body is the statement. */
static int request(struct exchange *x, const char *insert_sql, const char *format,
		   const struct clickhouse_param *params, struct clickhouse_body body,
		   struct why *why)
{
	const char *prefix = x->client->table_prefix;
	AUTO_FREE char *url = NULL, *named = NULL;
	struct curl_slist *headers;
	int err;

	if (prefix) {
		named = own_names_put(insert_sql ?: body.bytes, prefix);
		if (!named)
			return why_fail(why, ENOMEM, "out of memory");
		if (insert_sql)
			insert_sql = named;
		else
			body = (struct clickhouse_body){ .bytes = named, .len = strlen(named) };
	}

	*x->reply = (struct clickhouse_reply){ 0 };
	headers = make_headers(x->client, body.gzipped);
	if (!headers || !make_url(x->client, insert_sql, format, params, &url))
		err = why_fail(why, ENOMEM, "out of memory");
	else
		err = http_post(x, url, headers, body.bytes, body.len, why);
	for (struct curl_slist *l = headers; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(headers);
	return err;
}

/* Same server and credentials, another limit, a separate connection; false: no memory. */
static bool set_brief(struct clickhouse_client *client, uint64_t limit_ns,
		      struct clickhouse_client *brief)
{
	brief->url = client->url;
	brief->unix_socket = client->unix_socket;
	brief->database = client->database;
	brief->ca_file = client->ca_file;
	brief->cert_file = client->cert_file;
	brief->key_file = client->key_file;
	brief->credentials = client->credentials;
	brief->connect_timeout_ns = brief->stall_timeout_ns = brief->timeout_ns = limit_ns;
	brief->connections = http_connections();
	return brief->connections;
}

/* Asked during a question without a byte. Any answer counts, also of a proxy. */
static bool answers_ping(struct clickhouse_client *client)
{
	struct clickhouse_client brief = { .parent = client };
	struct why ignored;
	int err;

	if (!set_brief(client, EXCHANGE_PING_S * NSEC_PER_SEC, &brief))
		return true;
	err = clickhouse_ping(&brief, &ignored);
	curl_share_cleanup(brief.connections);
	return err != -ETIMEDOUT;
}

static int query_once(struct clickhouse_client *client, const char *sql, const char *format,
		      const struct clickhouse_param *params, clickhouse_on_bytes on_bytes,
		      void *context, struct clickhouse_reply *reply, struct why *why)
{
	AUTO_FREE struct exchange *x = calloc(1, sizeof(*x));
	struct clickhouse_body body = { .bytes = sql, .len = strlen(sql) };
	int err;

	if (!x)
		return why_fail(why, ENOMEM, "out of memory");
	x->client = client;
	x->reply = reply;
	x->answers = client->patient ? answers_ping : NULL;
	x->on_bytes = on_bytes;
	x->context = context;
	err = request(x, NULL, format, params, body, why);
	client->deaf = x->deaf;
	return err;
}

/* Cancels an abandoned query in the server; best effort with a short timeout. */
static void kill_query(struct clickhouse_client *client)
{
	static const char sql[] = "KILL QUERY WHERE user = currentUser() AND " CLICKHOUSE_IS_QUERY
				  " ASYNC";
	const struct clickhouse_param params[] = { { "param_id", client->query_id }, { 0 } };
	struct clickhouse_client brief = { 0 };
	struct clickhouse_reply reply;

	if (!set_brief(client, 2 * NSEC_PER_SEC, &brief))
		return;
	query_once(&brief, sql, NULL, params, NULL, NULL, &reply, NULL);
	curl_share_cleanup(brief.connections);
}

/*
 * cancel_http_readonly_queries_on_client_close makes the server watch the connection. A user
 * without the right to change settings, and WITH ... INSERT, are refused (READONLY) before
 * execution: repeated without the setting.
 */
static int query_patiently(struct clickhouse_client *client, const char *sql, const char *format,
			   const struct clickhouse_param *params, clickhouse_on_bytes on_bytes,
			   void *context, struct clickhouse_reply *reply, struct why *why)
{
	enum { WATCHED = 2 };
	struct clickhouse_param all[MAX_PARAMS + 5] = {
		{ "readonly", "2" },
		{ "cancel_http_readonly_queries_on_client_close", "1" },
		{ "query_id", client->query_id },
	};
	struct statement statement;
	size_t n = 0;
	int err;

	while (params && params[n].name) {
		if (n > MAX_PARAMS)
			return why_fail(why, E2BIG, "over %d parameters for a query", MAX_PARAMS);
		all[n + 3] = params[n];
		n++;
	}
	statement_parse((struct text){ sql, strlen(sql) }, &statement);
	random_hex(client->query_id, 32);
	err = query_once(client, sql, format, all + (statement.reads ? 0 : WATCHED), on_bytes,
			 context, reply, why);
	if (err && statement.reads && reply->exception_code == EXCEPTION_READONLY &&
	    reply->http_status != 200)
		err = query_once(client, sql, format, all + WATCHED, on_bytes, context, reply, why);
	/* not if the server answered, was never reached, or answers nothing */
	if (err && err != -EREMOTEIO && err != -ECONNREFUSED && !client->deaf)
		kill_query(client);
	return err;
}

int clickhouse_query(struct clickhouse_client *client, const char *sql, const char *format,
		     const struct clickhouse_param *params, clickhouse_on_bytes on_bytes,
		     void *context, struct clickhouse_reply *reply, struct why *why)
{
	return (client->patient ? query_patiently : query_once)(client, sql, format, params,
								on_bytes, context, reply, why);
}

struct text_buffer {
	char *bytes;
	size_t len, size;
};

static int keep_bytes(const char *bytes, size_t n, void *context)
{
	struct text_buffer *b = context;

	if (b->len + n > MAX_TEXT_BYTES)
		return -EFBIG;
	if (b->len + n + 1 > b->size) {
		size_t size = (b->len + n + 1) * 2;
		char *grown = realloc(b->bytes, size);

		if (!grown)
			return -ENOMEM;
		b->bytes = grown;
		b->size = size;
	}
	memcpy(b->bytes + b->len, bytes, n);
	b->len += n;
	b->bytes[b->len] = '\0';
	return 0;
}

int clickhouse_query_text(struct clickhouse_client *client, const char *sql, const char *format,
			  const struct clickhouse_param *params, char **ret_text, size_t *ret_len,
			  struct clickhouse_reply *reply, struct why *why)
{
	struct clickhouse_param all[MAX_PARAMS + 2] = { { "wait_end_of_query", "1" } };
	struct text_buffer buffer = { 0 };
	size_t n = 0;
	int err;

	while (params && params[n].name && n < MAX_PARAMS) {
		all[n + 1] = params[n];
		n++;
	}
	if (params && params[n].name)
		return why_fail(why, E2BIG, "over %d parameters for a query", MAX_PARAMS);
	/* buffered here anyway: the server buffers until the status is final */
	err = clickhouse_query(client, sql, format, all, keep_bytes, &buffer, reply, why);

	if (err == -EFBIG)
		why_fail(why, EFBIG, "the answer is larger than %d MiB", MAX_TEXT_BYTES >> 20);
	/* an empty answer is valid */
	if (!err && !buffer.bytes)
		err = keep_bytes("", 0, &buffer);
	if (err) {
		free(buffer.bytes);
		return err;
	}
	*ret_text = buffer.bytes;
	if (ret_len)
		*ret_len = buffer.len;
	return 0;
}

int clickhouse_insert(struct clickhouse_client *client, const char *insert_sql,
		      const struct clickhouse_param *params, const struct clickhouse_body *body,
		      struct clickhouse_reply *reply, struct why *why)
{
	AUTO_FREE struct exchange *x = calloc(1, sizeof(*x));

	int err;

	if (!x)
		return why_fail(why, ENOMEM, "out of memory");
	x->client = client;
	x->reply = reply;
	err = request(x, insert_sql, NULL, params, *body, why);
	if (!err && !reply->from_clickhouse)
		return why_fail(why, EBADMSG,
				"%.200s answered 200, but is no ClickHouse: the rows are nowhere",
				client->url);
	return err;
}

int clickhouse_ping(struct clickhouse_client *client, struct why *why)
{
	AUTO_FREE struct exchange *x = calloc(1, sizeof(*x));
	struct clickhouse_reply reply = { 0 };
	AUTO_FREE char *url = NULL;

	if (!x || asprintf(&url, "%s/ping", client->url) < 0)
		return why_fail(why, ENOMEM, "out of memory");
	x->client = client;
	x->reply = &reply;
	return http_get(x, url, why);
}
