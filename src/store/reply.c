// SPDX-License-Identifier: Apache-2.0
/* Replies: complete, streamed, compressed. See reply.h. */
#include "store/reply.h"

#include <string.h>
#include <zlib.h>

#include "clickhouse/client.h"
#include "store/dialect.h"

struct piece {
	struct piece *next;
	struct engine_result result;
};

struct reply {
	struct session *session;
	const struct engine *engine;
	struct MHD_Connection *connection;
	unsigned int client_timeout_s;
	struct piece *first, *last;
	size_t size, at; /* bytes of all blocks; read position in the first block */
	bool more;	 /* the session has further blocks */
	bool failed;	 /* an exception follows the bytes already sent */
	bool gzip, gzip_done;
	z_stream zlib;
	char tag[EXCEPTION_TAG_LEN + 1];
};

struct reply *reply_new(struct session *session, const struct engine *engine,
			struct MHD_Connection *connection, unsigned int client_timeout_s)
{
	struct reply *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->session = session;
	r->engine = engine;
	r->connection = connection;
	r->client_timeout_s = client_timeout_s;
	return r;
}

static void drop_first(struct reply *r)
{
	struct piece *p = r->first;

	r->first = p->next;
	if (!r->first)
		r->last = NULL;
	r->at = 0;
	engine_result_free(&p->result);
	free(p);
}

void reply_free(struct reply *r)
{
	if (!r)
		return;
	while (r->first)
		drop_first(r);
	if (r->gzip)
		deflateEnd(&r->zlib);
	session_free(r->session);
	free(r);
}

int reply_add(struct reply *r, struct engine_result *result)
{
	struct piece *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->result = *result;
	*result = (struct engine_result){ 0 };
	if (r->last)
		r->last->next = p;
	else
		r->first = p;
	r->last = p;
	r->size += p->result.bytes.len;
	return 0;
}

size_t reply_size(const struct reply *r)
{
	return r->size;
}

void reply_stream_rest(struct reply *r)
{
	r->more = true;
}

/* Whether the text already ends with "(version ...)". */
static bool is_versioned(const char *error, size_t len)
{
	const char *open = memrchr(error, '(', len);

	return open && !strncmp(open, "(version ", 9) && error[len - 1] == ')';
}

char *exception_text(const char *error, const char *version)
{
	size_t len = strlen(error);
	const char *start = clickhouse_exception_code(error, len) ? ""
								  : "Code: 1002. DB::Exception: ";
	const char *end = *start ? ". (UNKNOWN_EXCEPTION)" : "";
	char *text;

	while (len && error[len - 1] == '\n')
		len--;
	if (len && error[len - 1] != ')')
		end = *start ? end : ".";
	if (is_versioned(error, len))
		return asprintf(&text, "%s%.*s\n", start, (int)len, error) < 0 ? NULL : text;
	return asprintf(&text, "%s%.*s%s (version %s)\n", start, (int)len, error, end, version) < 0
		       ? NULL
		       : text;
}

/* The exception as the last block of the body; its length field counts "<message>\n". */
static int add_exception(struct reply *r, const char *error)
{
	static const char mark[] = "__exception__";
	AUTO_FREE char *message = exception_text(error, engine_version(r->engine));
	struct engine_result result = { 0 };
	int n, err;

	if (!message)
		return -ENOMEM;
	n = asprintf(&result.own, "\r\n%s\r\n%s\r\n%s%zu %s\r\n%s\r\n", mark, r->tag, message,
		     strlen(message), r->tag, mark);
	if (n < 0)
		return -ENOMEM;
	result.bytes = (struct text){ result.own, (size_t)n };
	err = reply_add(r, &result);
	engine_result_free(&result);
	r->more = false;
	r->failed = true;
	return err;
}

/* Appends the stream's next block, if any. */
static int fetch(struct reply *r)
{
	struct engine_result result;
	int err = 0;

	/* no client timeout while the engine computes */
	MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
	session_stream_next(r->session, &result);
	MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT,
				  r->client_timeout_s);
	if (result.error)
		err = add_exception(r, result.error);
	else if (!result.bytes.len)
		r->more = false;
	else
		err = reply_add(r, &result);
	engine_result_free(&result);
	return err;
}

/* Bytes to send now; n 0 at the end. */
static int peek(struct reply *r, struct text *ret)
{
	while (true) {
		if (r->first && r->at < r->first->result.bytes.len) {
			ret->at = r->first->result.bytes.at + r->at;
			ret->len = r->first->result.bytes.len - r->at;
			return 0;
		}
		if (r->first) {
			drop_first(r);
		} else if (r->more) {
			int err = fetch(r);

			if (err)
				return err;
		} else {
			*ret = (struct text){ "", 0 };
			return 0;
		}
	}
}

static ssize_t read_plain(struct reply *r, char *buf, size_t max)
{
	struct text bytes;

	if (peek(r, &bytes) < 0)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (!bytes.len)
		return r->failed ? MHD_CONTENT_READER_END_WITH_ERROR
				 : MHD_CONTENT_READER_END_OF_STREAM;
	if (bytes.len > max)
		bytes.len = max;
	memcpy(buf, bytes.at, bytes.len);
	r->at += bytes.len;
	return (ssize_t)bytes.len;
}

static ssize_t read_packed(struct reply *r, char *buf, size_t max)
{
	z_stream *z = &r->zlib;

	if (r->gzip_done)
		return r->failed ? MHD_CONTENT_READER_END_WITH_ERROR
				 : MHD_CONTENT_READER_END_OF_STREAM;
	z->next_out = (Bytef *)buf;
	z->avail_out = (uInt)max;
	while (z->avail_out == (uInt)max) {
		struct text bytes;
		int status;

		if (peek(r, &bytes) < 0)
			return MHD_CONTENT_READER_END_WITH_ERROR;
		if (bytes.len > UINT32_MAX / 2)
			bytes.len = UINT32_MAX / 2;
		z->next_in = (Bytef *)bytes.at;
		z->avail_in = (uInt)bytes.len;
		status = deflate(z, bytes.len ? Z_NO_FLUSH : Z_FINISH);
		r->at += bytes.len - z->avail_in;
		if (status == Z_STREAM_END) {
			r->gzip_done = true;
			break;
		}
		if (status != Z_OK && status != Z_BUF_ERROR)
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	return (ssize_t)(max - z->avail_out);
}

static ssize_t read_reply(void *context, uint64_t pos, char *buf, size_t max)
{
	struct reply *r = context;

	(void)pos;
	return r->gzip ? read_packed(r, buf, max) : read_plain(r, buf, max);
}

static void free_reply(void *context)
{
	reply_free(context);
}

struct MHD_Response *reply_response(struct reply *r, bool gzip, const char *tag)
{
	enum { BLOCK = 128 * 1024 };
	bool known;

	/* 16: gzip framing */
	if (gzip)
		r->gzip = deflateInit2(&r->zlib, 3, Z_DEFLATED, MAX_WBITS + 16, 8,
				       Z_DEFAULT_STRATEGY) == Z_OK;
	known = !r->gzip && !r->more;
	snprintf(r->tag, sizeof(r->tag), "%s", tag);
	return MHD_create_response_from_callback(known ? r->size : MHD_SIZE_UNKNOWN, BLOCK,
						 read_reply, r, free_reply);
}
