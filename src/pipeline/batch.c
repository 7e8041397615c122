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
	buffer_free(&batch->packed);
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

	return sizeof(*batch) + batch->body.capacity + batch->packed.capacity + strings;
}

/* Appends. The output buffer grows on demand: the worst case would double the memory. */
static int compress_text(const struct buffer *text, struct buffer *gzip)
{
	z_stream z = { .next_in = (Bytef *)text->data, .avail_in = (uInt)text->len };
	size_t before = gzip->len;
	int err = 0, status = Z_OK;

	/* 15 + 16: largest window, gzip header; level 1: CPU costs more than bytes here */
	if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	while (!err && status == Z_OK) {
		err = buffer_reserve(gzip, 16 << 10);
		if (err)
			break;
		z.next_out = (Bytef *)gzip->data + gzip->len;
		z.avail_out = (uInt)(gzip->capacity - gzip->len);
		status = deflate(&z, Z_FINISH);
		gzip->len = gzip->capacity - z.avail_out;
	}
	deflateEnd(&z);
	if (!err && status != Z_STREAM_END)
		err = -ENOMEM;
	if (err)
		gzip->len = before;
	return err;
}

int batch_pack(struct batch *batch)
{
	int err = compress_text(&batch->body, &batch->packed);

	if (!err)
		batch->body.len = 0;
	return err;
}

int batch_seal(struct batch *batch, const char *origin, const char *table, const char *insert)
{
	char token[DEDUP_TOKEN_MAX], *token_copy, *insert_copy;

	if ((batch->body.len || !batch->packed.len) && batch_pack(batch))
		return -ENOMEM;
	dedup_token_print(origin, table, batch->order, batch->part, &batch->packed, token);
	token_copy = strdup(token);
	insert_copy = strdup(insert);
	if (!token_copy || !insert_copy) {
		free(token_copy);
		free(insert_copy);
		return -ENOMEM;
	}
	buffer_free(&batch->body);
	buffer_shrink(&batch->packed);
	batch->body = batch->packed;
	batch->packed = (struct buffer){ 0 };
	batch->token = token_copy;
	batch->insert = insert_copy;
	return 0;
}

/* Inflates the gzip file's members. */
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
		else if (status == Z_STREAM_END && z.avail_in)
			status = inflateReset(&z);
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
