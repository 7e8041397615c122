// SPDX-License-Identifier: Apache-2.0
/* Request bodies: decompressed and bounded on arrival. See body.h. */
#include "store/body.h"

#include <string.h>
#include <strings.h>

enum body_encoding body_encoding_parse(const char *e)
{
	if (!e || !*e || !strcasecmp(e, "identity"))
		return BODY_PLAIN;
	if (!strcasecmp(e, "gzip") || !strcasecmp(e, "x-gzip") || !strcasecmp(e, "deflate"))
		return BODY_GZIP;
	return BODY_UNKNOWN;
}

int body_begin(struct body *body, struct body_budget *budget, enum body_encoding encoding)
{
	*body = (struct body){ .budget = budget, .packed = encoding == BODY_GZIP };
	/* 32: gzip or zlib, by the stream's header */
	if (body->packed && inflateInit2(&body->zlib, MAX_WBITS + 32) != Z_OK) {
		body->packed = false;
		return -ENOMEM;
	}
	return 0;
}

/* Makes room for at least one byte more; the size never exceeds max_body. */
static int grow(struct body *body)
{
	size_t size = body->size ? body->size * 2 : 64 * 1024;
	size_t more;
	char *grown;

	if (body->size == body->budget->max_body)
		return -EFBIG;
	if (size > body->budget->max_body)
		size = body->budget->max_body;
	more = size - body->size;
	if (atomic_fetch_add(&body->budget->held, more) + more > body->budget->max_total) {
		atomic_fetch_sub(&body->budget->held, more);
		return -ENOBUFS;
	}
	grown = realloc(body->bytes, size);
	if (!grown) {
		atomic_fetch_sub(&body->budget->held, more);
		return -ENOMEM;
	}
	body->bytes = grown;
	body->size = size;
	return 0;
}

static int append_plain(struct body *body, const char *bytes, size_t n)
{
	while (n) {
		size_t room = body->size - body->len;
		int err;

		if (!room) {
			err = grow(body);
			if (err)
				return err;
			continue;
		}
		if (room > n)
			room = n;
		memcpy(body->bytes + body->len, bytes, room);
		body->len += room;
		bytes += room;
		n -= room;
	}
	return 0;
}

static int append_packed(struct body *body, const char *bytes, size_t n)
{
	z_stream *z = &body->zlib;

	z->next_in = (Bytef *)bytes;
	z->avail_in = (uInt)n;
	while (true) {
		size_t room = body->size - body->len;
		uInt given;
		int status, err;

		/* gzip members may follow each other */
		if (body->ended) {
			if (!z->avail_in)
				return 0;
			if (inflateReset(z) != Z_OK)
				return -EBADMSG;
			body->ended = false;
		}
		if (!room) {
			err = grow(body);
			if (err)
				return err;
			continue;
		}
		given = room > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)room;
		z->next_out = (Bytef *)body->bytes + body->len;
		z->avail_out = given;
		status = inflate(z, Z_NO_FLUSH);
		body->len += given - z->avail_out;
		if (status == Z_STREAM_END)
			body->ended = true;
		else if (status == Z_BUF_ERROR || (status == Z_OK && z->avail_out))
			return 0; /* more input needed */
		else if (status != Z_OK)
			return status == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	}
}

int body_append(struct body *body, const char *bytes, size_t n)
{
	return body->packed ? append_packed(body, bytes, n) : append_plain(body, bytes, n);
}

int body_finish(struct body *body)
{
	/* an empty body is valid with every Content-Encoding */
	return body->packed && !body->ended && body->zlib.total_in ? -EBADMSG : 0;
}

void body_free(struct body *body)
{
	if (body->packed)
		inflateEnd(&body->zlib);
	if (body->size)
		atomic_fetch_sub(&body->budget->held, body->size);
	free(body->bytes);
	*body = (struct body){ 0 };
}
