// SPDX-License-Identifier: Apache-2.0
/* ClickHouse over libcurl. See client.h. */
#include "clickhouse/client.h"

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "version.h"

enum {
	MAX_TEXT_BYTES = 64 << 20,
	HEAD_BYTES = 8192, /* of a body: where an exception's text is looked for */
	TAG_MAX = 64,
};

struct clickhouse_client {
	CURL *curl;
	char *url, *database, *ca_file;
	struct curl_slist *credentials;
	uint64_t connect_timeout_ns, stall_timeout_ns, timeout_ns;
	atomic_bool cancelled;
};

/* One request under way. */
struct exchange {
	struct clickhouse_client *client;
	struct clickhouse_reply *reply;
	clickhouse_on_bytes on_bytes;
	void *context;
	int consumer_err;
	char head[HEAD_BYTES], tail[HEAD_BYTES];
	size_t head_len, tail_len;
	char tag[TAG_MAX]; /* marks an exception that comes after the first bytes */
};

void clickhouse_endpoint_free(struct clickhouse_endpoint *e)
{
	if (e->password)
		explicit_bzero(e->password, strlen(e->password));
	free(e->url);
	free(e->user);
	free(e->password);
	free(e->database);
	free(e->ca_file);
	*e = (struct clickhouse_endpoint){ 0 };
}

static int check_parts(const char *url, CURLU *parts, struct why *why)
{
	static const char fix[] = "the user goes into clickhouse_user, the password into "
				  "clickhouse_password_file or $UNDERSPAN_CLICKHOUSE_PASSWORD";
	char *part = NULL;
	int err = 0;

	if (curl_url_get(parts, CURLUPART_USER, &part, 0) == CURLUE_OK ||
	    curl_url_get(parts, CURLUPART_PASSWORD, &part, 0) == CURLUE_OK) {
		err = why_fail(why, EINVAL,
			       "clickhouse: no user or password in the URL, it would "
			       "show in logs and process lists: %s",
			       fix);
	} else if (curl_url_get(parts, CURLUPART_QUERY, &part, 0) == CURLUE_OK ||
		   curl_url_get(parts, CURLUPART_FRAGMENT, &part, 0) == CURLUE_OK) {
		/* may hold ?password=: do not repeat it */
		err = why_fail(why, EINVAL,
			       "clickhouse: no parameters in the URL: %s, the database "
			       "into clickhouse_database",
			       fix);
	} else if (curl_url_get(parts, CURLUPART_SCHEME, &part, 0) != CURLUE_OK ||
		   (strcmp(part, "http") != 0 && strcmp(part, "https") != 0)) {
		err = why_fail(why, EINVAL, "clickhouse: '%.200s' is neither http:// nor https://",
			       url);
	}
	curl_free(part);
	return err;
}

int clickhouse_check_url(const char *url, struct why *why)
{
	CURLU *parts = curl_url();
	int err;

	if (!parts)
		return why_fail(why, ENOMEM, "out of memory");
	if (curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK)
		err = check_parts(url, parts, why);
	else if (strchr(url, '@'))
		err = why_fail(why, EINVAL,
			       "clickhouse: the URL is not valid, and has an @: user "
			       "and password do not belong there");
	else
		err = why_fail(why, EINVAL,
			       "clickhouse: '%.200s' is not a URL such as http://127.0.0.1:8123",
			       url);
	curl_url_cleanup(parts);
	return err;
}

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

	/* "Header;" is how libcurl is told to send an empty one */
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
	c->database = strdup(e->database ?: "default");
	c->ca_file = e->ca_file ? strdup(e->ca_file) : NULL;
	c->connect_timeout_ns = e->connect_timeout_ns ?: 5 * NSEC_PER_SEC;
	c->stall_timeout_ns = e->stall_timeout_ns ?: 30 * NSEC_PER_SEC;
	c->timeout_ns = e->timeout_ns ?: 300 * NSEC_PER_SEC;
	if (!c->url || !c->database || (e->ca_file && !c->ca_file) ||
	    add_credential(c, "X-ClickHouse-User", e->user ?: "default") ||
	    (e->password && add_credential(c, "X-ClickHouse-Key", e->password)))
		return -ENOMEM;
	/* the path's own slash is ours to add */
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
	if (!c || copy_endpoint(c, e) || !(c->curl = curl_easy_init())) {
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
	curl_easy_cleanup(c->curl);
	free(c->url);
	free(c->database);
	free(c->ca_file);
	free(c);
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

int clickhouse_exception_code(const char *body, size_t len)
{
	static const char start[] = "Code: ";
	size_t i = sizeof(start) - 1;
	int code = 0;

	if (len <= i || memcmp(body, start, i) != 0)
		return 0;
	for (; i < len && body[i] >= '0' && body[i] <= '9' && code < 100000; i++)
		code = code * 10 + (body[i] - '0');
	return i < len && (body[i] == '.' || body[i] == ',') ? code : 0;
}

/* ---- what comes back ---- */

static void keep_sentence(struct clickhouse_reply *reply, const char *text, size_t len)
{
	while (len && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
		len--;
	if (len >= sizeof(reply->message))
		len = sizeof(reply->message) - 1;
	memcpy(reply->message, text, len);
	reply->message[len] = '\0';
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *context)
{
	struct exchange *x = context;
	size_t len = size * n;
	size_t head = HEAD_BYTES - x->head_len;

	if (head > len)
		head = len;
	memcpy(x->head + x->head_len, bytes, head);
	x->head_len += head;
	if (len >= HEAD_BYTES) {
		memcpy(x->tail, bytes + len - HEAD_BYTES, HEAD_BYTES);
		x->tail_len = HEAD_BYTES;
	} else {
		size_t keep = x->tail_len + len > HEAD_BYTES ? HEAD_BYTES - len : x->tail_len;

		memmove(x->tail, x->tail + x->tail_len - keep, keep);
		memcpy(x->tail + keep, bytes, len);
		x->tail_len = keep + len;
	}
	/* an error's text is for `why`, not for the caller's output */
	if (x->on_bytes && x->reply->http_status == 200 && !x->reply->exception_code)
		x->consumer_err = x->on_bytes(bytes, len, x->context);
	return x->consumer_err ? 0 : len;
}

static uint64_t summary_number(const json_t *summary, const char *name)
{
	const char *text = json_string_value(json_object_get(summary, name));

	return text ? strtoull(text, NULL, 10) : 0;
}

static void take_summary(struct clickhouse_reply *reply, const char *text, size_t len)
{
	json_t *summary = json_loadb(text, len, 0, NULL);

	if (!summary)
		return;
	reply->read_rows = summary_number(summary, "read_rows");
	reply->read_bytes = summary_number(summary, "read_bytes");
	reply->written_rows = summary_number(summary, "written_rows");
	reply->written_bytes = summary_number(summary, "written_bytes");
	json_decref(summary);
}

static size_t take_header(char *line, size_t size, size_t n, void *context)
{
	struct exchange *x = context;
	size_t len = size * n;
	char *colon, value[1024];
	size_t name_len, value_len;

	/* a new status line: what an interim answer said is over */
	if (len > 9 && !strncmp(line, "HTTP/", 5)) {
		const char *space = memchr(line, ' ', len);

		x->reply->http_status = space ? strtol(space, NULL, 10) : 0;
		return len;
	}
	colon = memchr(line, ':', len);
	if (!colon)
		return len;
	name_len = (size_t)(colon - line);
	colon++;
	while (colon < line + len && *colon == ' ')
		colon++;
	value_len = (size_t)(line + len - colon);
	if (value_len >= sizeof(value))
		return len;
	memcpy(value, colon, value_len);
	value[value_len] = '\0';
	value[strcspn(value, "\r\n")] = '\0';
	if (name_len == 27 && !strncasecmp(line, "X-ClickHouse-Exception-Code", 27))
		x->reply->exception_code = (int)strtol(value, NULL, 10);
	else if (name_len == 26 && !strncasecmp(line, "X-ClickHouse-Exception-Tag", 26))
		snprintf(x->tag, sizeof(x->tag), "%.*s", TAG_MAX - 1, value);
	else if (name_len == 20 && !strncasecmp(line, "X-ClickHouse-Summary", 20))
		take_summary(x->reply, value, strlen(value));
	else if (name_len == 11 && !strncasecmp(line, "Retry-After", 11))
		x->reply->retry_after_ns = strtoul(value, NULL, 10) * NSEC_PER_SEC;
	return len;
}

static int check_cancelled(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct exchange *x = context;

	(void)a, (void)b, (void)c, (void)d;
	return atomic_load(&x->client->cancelled);
}

/* HTTP 200 was said before the error: it stands between marks at the end of the body. */
static void find_late_exception(struct exchange *x)
{
	static const char mark[] = "\r\n__exception__\r\n";
	char start[sizeof(mark) + TAG_MAX + 2];
	const char *at, *end;
	size_t left;
	int n;

	if (!*x->tag)
		return;
	n = snprintf(start, sizeof(start), "%s%s\r\n", mark, x->tag);
	at = memmem(x->tail, x->tail_len, start, (size_t)n);
	if (!at)
		return;
	at += n;
	left = (size_t)(x->tail + x->tail_len - at);
	x->reply->exception_code = clickhouse_exception_code(at, left) ?: 1002;
	/* behind the text: its length, the tag and the mark again */
	end = memmem(at, left, mark, sizeof(mark) - 1);
	if (end)
		left = (size_t)(end - at);
	end = memrchr(at, '\n', left);
	keep_sentence(x->reply, at, end ? (size_t)(end - at) : left);
}

static int transport_error(CURLcode code, struct exchange *x, const char *said, struct why *why)
{
	struct clickhouse_client *c = x->client;
	long sent = 0;
	int err;

	curl_easy_getinfo(c->curl, CURLINFO_REQUEST_SIZE, &sent);
	if (x->consumer_err)
		return x->consumer_err;
	if (atomic_load(&c->cancelled))
		return why_fail(why, ECANCELED, "cancelled");
	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		err = ETIMEDOUT;
		break;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
		err = ECONNREFUSED;
		break;
	case CURLE_OUT_OF_MEMORY:
		err = ENOMEM;
		break;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
		err = ECONNRESET;
		break;
	default:
		err = sent ? ECONNRESET : EBADMSG;
	}
	if (!said || !*said)
		said = curl_easy_strerror(code);
	keep_sentence(x->reply, said, strlen(said));
	return why_fail(why, err, "ClickHouse at %.120s: %.300s", c->url, said);
}

static int conclude(CURLcode code, struct exchange *x, const char *said, struct why *why)
{
	struct clickhouse_reply *r = x->reply;

	if (!r->exception_code && (r->http_status != 200 || !x->on_bytes))
		r->exception_code = clickhouse_exception_code(x->head, x->head_len);
	if (r->exception_code || (r->http_status && r->http_status != 200))
		keep_sentence(r, x->head, x->head_len);
	else
		find_late_exception(x);
	if (r->exception_code)
		return why_fail(why, EREMOTEIO, "%.500s", r->message);
	if (code != CURLE_OK)
		return transport_error(code, x, said, why);
	if (r->http_status != 200)
		return why_fail(why, EREMOTEIO, "%.100s answered HTTP %ld: %.300s", x->client->url,
				r->http_status, *r->message ? r->message : "(no text)");
	return 0;
}

/* ---- what is sent ---- */

static bool is_loopback(const char *url)
{
	const char *host = strstr(url, "://");

	host = host ? host + 3 : url;
	return !strncmp(host, "127.", 4) || !strncmp(host, "localhost", 9) ||
	       !strncmp(host, "[::1]", 5);
}

static void set_options(struct exchange *x, char *said)
{
	struct clickhouse_client *c = x->client;
	CURL *curl = c->curl;

	/* keeps the connection, forgets the rest */
	curl_easy_reset(curl);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, said);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "underspan/" UNDERSPAN_VERSION);
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	/* certificates are verified (libcurl's default); redirects are not followed (likewise) */
	if (c->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, c->ca_file);
	if (is_loopback(c->url))
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)(c->connect_timeout_ns / NSEC_PER_MSEC));
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(c->timeout_ns / NSEC_PER_MSEC));
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
			 (long)((c->stall_timeout_ns + NSEC_PER_SEC - 1) / NSEC_PER_SEC));
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_cancelled);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, x);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

static bool add_parameter(CURL *curl, char **url, const char *name, const char *value)
{
	char *escaped_name = curl_easy_escape(curl, name, 0);
	char *escaped = *value ? curl_easy_escape(curl, value, 0) : NULL;
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

static bool make_url(struct clickhouse_client *c, const char *insert_sql, const char *format,
		     const struct clickhouse_param *params, char **ret_url)
{
	char *url = NULL;
	bool ok = asprintf(&url, "%s/", c->url) > 0;

	if (!ok)
		return false;
	ok = add_parameter(c->curl, &url, "database", c->database);
	if (ok && format)
		ok = add_parameter(c->curl, &url, "default_format", format);
	for (; ok && params && params->name; params++)
		ok = add_parameter(c->curl, &url, params->name, params->value);
	if (ok && insert_sql)
		ok = add_parameter(c->curl, &url, "query", insert_sql);
	if (ok)
		*ret_url = url;
	else
		free(url);
	return ok;
}

/* Credentials and, for a body, its headers; the list is the caller's to free. */
static struct curl_slist *make_headers(struct clickhouse_client *c, bool gzipped)
{
	struct curl_slist *list = NULL;

	for (struct curl_slist *l = c->credentials; l; l = l->next) {
		struct curl_slist *longer = curl_slist_append(list, l->data);

		if (!longer)
			goto fail;
		list = longer;
	}
	/* no waiting for "100 Continue", no form type for what is no form */
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

static int perform(struct exchange *x, const char *url, struct curl_slist *headers,
		   const void *body, size_t len, struct why *why)
{
	char said[CURL_ERROR_SIZE] = "";
	CURL *curl = x->client->curl;

	set_options(x, said);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	if (body) {
		curl_easy_setopt(curl, CURLOPT_POST, 1L);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	}
	return conclude(curl_easy_perform(curl), x, said, why);
}

static int request(struct exchange *x, const char *insert_sql, const char *format,
		   const struct clickhouse_param *params, const struct clickhouse_body *body,
		   struct why *why)
{
	struct curl_slist *headers;
	AUTO_FREE char *url = NULL;
	int err;

	*x->reply = (struct clickhouse_reply){ 0 };
	headers = make_headers(x->client, body->gzipped);
	if (!headers || !make_url(x->client, insert_sql, format, params, &url))
		err = why_fail(why, ENOMEM, "out of memory");
	else
		err = perform(x, url, headers, body->bytes, body->len, why);
	for (struct curl_slist *l = headers; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(headers);
	return err;
}

int clickhouse_query(struct clickhouse_client *client, const char *sql, const char *format,
		     const struct clickhouse_param *params, clickhouse_on_bytes on_bytes,
		     void *context, struct clickhouse_reply *reply, struct why *why)
{
	AUTO_FREE struct exchange *x = calloc(1, sizeof(*x));
	struct clickhouse_body body = { .bytes = sql, .len = strlen(sql) };

	if (!x)
		return why_fail(why, ENOMEM, "out of memory");
	x->client = client;
	x->reply = reply;
	x->on_bytes = on_bytes;
	x->context = context;
	return request(x, NULL, format, params, &body, why);
}

struct text_buffer {
	char *bytes;
	size_t len, size;
};

static int keep_bytes(const char *bytes, size_t n, void *context)
{
	struct text_buffer *b = context;

	if (b->len + n + 1 > b->size) {
		size_t size = (b->len + n + 1) * 2;
		char *grown;

		if (b->len + n > MAX_TEXT_BYTES)
			return -EFBIG;
		grown = realloc(b->bytes, size);
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
	struct text_buffer buffer = { 0 };
	int err = clickhouse_query(client, sql, format, params, keep_bytes, &buffer, reply, why);

	if (err == -EFBIG)
		why_fail(why, EFBIG, "the answer is larger than %d MiB", MAX_TEXT_BYTES >> 20);
	/* an empty answer is a text, too */
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

	if (!x)
		return why_fail(why, ENOMEM, "out of memory");
	x->client = client;
	x->reply = reply;
	return request(x, insert_sql, NULL, params, body, why);
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
	return perform(x, url, NULL, NULL, 0, why);
}
