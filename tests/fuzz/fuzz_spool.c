// SPDX-License-Identifier: Apache-2.0
/* A spool file: name (first line) and bytes; accepted batches are split. */
#include "fuzz.h"

#include <zlib.h>

#include "pipeline/spool/spool_file.h"

/* Corrects the checksums, which a fuzzer cannot guess. */
static void mend(struct buffer *file)
{
	uint32_t lens[3], crc;
	uint64_t header;

	if (file->len < 80)
		return;
	memcpy(file->data, "uspan 1\n", 8);
	memcpy(lens, file->data + 64, sizeof(lens));
	for (int i = 0; i < 3; i++)
		lens[i] %= 64;
	memcpy(file->data + 64, lens, sizeof(lens));
	memset(file->data + 76, 0, 4);
	header = 80 + lens[0] + lens[1] + lens[2];
	if (header > file->len)
		return;
	memcpy(file->data + 16, &(uint64_t){ file->len - header }, 8);
	crc = (uint32_t)crc32(0, (unsigned char *)file->data + header,
			      (unsigned int)(file->len - header));
	memcpy(file->data + 12, &crc, 4);
	crc = (uint32_t)crc32(0, (unsigned char *)file->data + 12, (unsigned int)header - 12);
	memcpy(file->data + 8, &crc, 4);
}

static void use(struct batch *batch, const char *table)
{
	struct batch *halves[2];
	struct buffer text;

	MUST(batch->token && batch->insert && strlen(batch->token) < DEDUP_TOKEN_MAX);
	if (!batch_rows_text(batch, 16 << 20, &text)) {
		MUST(text.len <= 16 << 20);
		buffer_free(&text);
	}
	for (int by_days = 0; by_days < 2; by_days++) {
		if (batch_split(batch, table, by_days, halves))
			continue;
		MUST(halves[0]->rows && halves[1]->rows);
		MUST(halves[0]->rows + halves[1]->rows == batch->rows);
		MUST(strcmp(halves[0]->token, halves[1]->token) != 0);
		batch_free(halves[0]);
		batch_free(halves[1]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, '\n', size);
	size_t name_len = end ? (size_t)(end - data) : 0;
	char *text = fuzz_text(data, name_len);
	struct spool_name name = { .order = 1, .rows = 1, .table = "t" };
	struct buffer file = { 0 };
	struct batch *batch;
	struct why why = { { 0 } };

	if (spool_name_parse(text, &name)) {
		struct batch back = { .order = name.order, .rows = name.rows };
		char again[SPOOL_NAME_MAX];

		MUST(strlen(name.part) <= BATCH_PART_MAX);
		strcpy(back.part, name.part);
		spool_name_print(&back, name.table, again);
		MUST(spool_name_parse(again, &name));
	}
	free(text);
	if (end)
		MUST(!buffer_append(&file, end + 1, size - name_len - 1));
	for (int mended = 0; mended < 2; mended++) {
		batch = batch_new();
		MUST(batch);
		if (mended && file.len >= 80) {
			mend(&file);
			memcpy(&name.order, file.data + 24, 8);
			memcpy(&name.rows, file.data + 32, 8);
			name.rows %= 1000; /* bounded memory */
			memcpy(file.data + 32, &name.rows, 8);
			mend(&file);
		}
		batch->order = name.order;
		batch->rows = name.rows;
		if (!spool_file_decode(&file, &name, batch, &why))
			use(batch, name.table);
		else
			MUST(why.text[0]);
		batch_free(batch);
	}
	buffer_free(&file);
	return 0;
}
