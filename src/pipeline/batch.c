// SPDX-License-Identifier: Apache-2.0
/* Batches: fill, seal, free. See batch.h; splitting is in split.c. */
#include "pipeline/batch.h"

#include <zlib.h>

struct batch *batch_new(void)
{
	return calloc(1, sizeof(struct batch));
}

void batch_unload(struct batch *batch)
{
	buffer_free(&batch->body);
	free(batch->token);
	free(batch->insert);
	batch->token = batch->insert = NULL;
}

void batch_free(struct batch *batch)
{
	if (!batch)
		return;
	batch_unload(batch);
	free(batch);
}

size_t batch_memory(const struct batch *batch)
{
	size_t strings = batch->token ? strlen(batch->token) + strlen(batch->insert) : 0;

	return sizeof(*batch) + batch->body.capacity + strings;
}

/* The output buffer grows on demand: the worst case would double the memory. */
static int compress_rows(const struct buffer *rows, struct buffer *ret_gzip)
{
	z_stream z = { .next_in = (Bytef *)rows->data, .avail_in = (uInt)rows->len };
	struct buffer out = { 0 };
	int err = 0, status = Z_OK;

	/* 15 + 16: largest window, gzip header; level 1: CPU costs more than bytes here */
	if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	while (!err && status == Z_OK) {
		err = buffer_reserve(&out, 16 << 10);
		if (err)
			break;
		z.next_out = (Bytef *)out.data + out.len;
		z.avail_out = (uInt)(out.capacity - out.len);
		status = deflate(&z, Z_FINISH);
		out.len = out.capacity - z.avail_out;
	}
	deflateEnd(&z);
	if (!err && status != Z_STREAM_END)
		err = -ENOMEM;
	if (err) {
		buffer_free(&out);
		return err;
	}
	buffer_shrink(&out);
	*ret_gzip = out;
	return 0;
}

int batch_seal(struct batch *batch, const char *origin, const char *table, const char *insert)
{
	struct buffer gzip;
	char token[DEDUP_TOKEN_MAX], *token_copy, *insert_copy;

	if (compress_rows(&batch->body, &gzip))
		return -ENOMEM;
	dedup_token_print(origin, table, batch->order, batch->part, &gzip, token);
	token_copy = strdup(token);
	insert_copy = strdup(insert);
	if (!token_copy || !insert_copy) {
		free(token_copy);
		free(insert_copy);
		buffer_free(&gzip);
		return -ENOMEM;
	}
	buffer_free(&batch->body);
	batch->body = gzip;
	batch->token = token_copy;
	batch->insert = insert_copy;
	return 0;
}

int batch_rows_text(const struct batch *batch, size_t max, struct buffer *ret_text)
{
	struct buffer text = { 0 };
	z_stream z = { .next_in = (Bytef *)batch->body.data, .avail_in = (uInt)batch->body.len };
	int err = 0, status = Z_OK;

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return -ENOMEM;
	while (!err && status == Z_OK) {
		err = buffer_reserve(&text, 64 << 10);
		if (err)
			break;
		z.next_out = (Bytef *)text.data + text.len;
		z.avail_out = (uInt)(text.capacity - text.len);
		status = inflate(&z, Z_NO_FLUSH);
		text.len = text.capacity - z.avail_out;
		if (text.len > max)
			err = -EFBIG;
	}
	inflateEnd(&z);
	if (!err && status != Z_STREAM_END)
		err = status == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	if (err) {
		buffer_free(&text);
		return err;
	}
	*ret_text = text;
	return 0;
}
