// SPDX-License-Identifier: Apache-2.0
/* Batches: fill, seal, free. See batch.h; splitting is in split.c. */
#include "pipeline/batch.h"

#include <zlib.h>

#include "pipeline/deflate.h"

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

/* Of a gzip file without name and time, compressed for speed on Unix. The trailer: crc32 and
 * length. */
static const char gzip_header[10] = { 0x1f, (char)0x8b, 8, [8] = 4, [9] = 3 };
enum { GZIP_TRAILER = 8 };

/* The last text may be empty. */
static int compress_text(struct batch *batch, bool last)
{
	struct buffer *gzip = &batch->packed;
	size_t before = gzip->len;
	uint32_t crc = before ? batch->crc : 0, length = before ? batch->length : 0;
	uint8_t trailer[GZIP_TRAILER];
	int err = before ? 0 : buffer_append(gzip, gzip_header, sizeof(gzip_header));

	if (batch->body.len)
		crc = deflate_crc32(crc, batch->body.data, batch->body.len);
	length += (uint32_t)batch->body.len;
	if (!err)
		err = deflate_text(&batch->body, last, gzip);
	for (int i = 0; i < 4; i++) {
		trailer[i] = (uint8_t)(crc >> 8 * i);
		trailer[4 + i] = (uint8_t)(length >> 8 * i);
	}
	if (!err && last)
		err = buffer_append(gzip, trailer, sizeof(trailer));
	if (err) {
		gzip->len = before;
		return err;
	}
	batch->crc = crc;
	batch->length = length;
	return 0;
}

int batch_pack(struct batch *batch)
{
	int err = compress_text(batch, false);

	if (!err)
		batch->body.len = 0;
	return err;
}

int batch_seal(struct batch *batch, const char *origin, const char *table, const char *insert)
{
	char token[DEDUP_TOKEN_MAX], *token_copy, *insert_copy;
	size_t before = batch->packed.len;
	uint32_t crc = batch->crc, length = batch->length;

	if (compress_text(batch, true))
		return -ENOMEM;
	dedup_token_print(origin, table, batch->order, batch->part, &batch->packed, token);
	token_copy = strdup(token);
	insert_copy = strdup(insert);
	if (!token_copy || !insert_copy) {
		free(token_copy);
		free(insert_copy);
		batch->packed.len = before;
		batch->crc = crc;
		batch->length = length;
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
