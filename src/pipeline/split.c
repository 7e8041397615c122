// SPDX-License-Identifier: Apache-2.0
/*
 * Splits a batch: to find a refused row by bisection, or when its days exceed the partitions
 * allowed for one INSERT. See batch.h.
 */
#include "pipeline/batch.h"

static const uint64_t US_PER_DAY = 86400ULL * 1000000;
enum { MAX_TEXT_BYTES = 128 << 20 };

/* The value after "start_time": or "time":. Inside a string the quote would be escaped. */
static bool day_of_row(const char *row, size_t len, uint64_t *ret_day)
{
	static const char *const names[] = { "\"start_time\":", "\"time\":" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = strlen(names[i]);
		const char *at = memmem(row, len, names[i], n), *end = row + len;
		uint64_t us = 0;

		if (!at)
			continue;
		for (at += n; at < end && *at >= '0' && *at <= '9'; at++)
			us = us * 10 + (uint64_t)(*at - '0');
		*ret_day = us / US_PER_DAY;
		return true;
	}
	return false;
}

static size_t row_length(const struct buffer *text, size_t at)
{
	const char *end = memchr(text->data + at, '\n', text->len - at);

	return end ? (size_t)(end + 1 - text->data) - at : text->len - at;
}

static int compare_days(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* First day of the later half of the distinct days; 0: a single day. */
static uint64_t middle_day(uint64_t *days, size_t n)
{
	size_t different = 0;

	qsort(days, n, sizeof(*days), compare_days);
	for (size_t i = 0; i < n; i++) {
		if (!different || days[i] != days[different - 1])
			days[different++] = days[i];
	}
	return different > 1 ? days[different / 2] : 0;
}

/* The day to split at; 0: unknown, or a single day. */
static uint64_t find_pivot(const struct buffer *text, uint64_t rows)
{
	AUTO_FREE uint64_t *days = calloc(rows, sizeof(*days));
	size_t n = 0;

	if (!days)
		return 0;
	for (size_t at = 0, len; at < text->len && n < rows; at += len) {
		len = row_length(text, at);
		if (!day_of_row(text->data + at, len, &days[n++]))
			return 0;
	}
	return middle_day(days, n);
}

static int distribute(const struct batch *batch, const struct buffer *text, uint64_t pivot,
		      struct batch *halves[2])
{
	uint64_t row = 0, day = 0;

	for (size_t at = 0, len; at < text->len; at += len, row++) {
		bool later;

		len = row_length(text, at);
		if (pivot)
			later = day_of_row(text->data + at, len, &day) && day >= pivot;
		else
			later = row >= batch->rows / 2;
		if (buffer_append(&halves[later]->body, text->data + at, len))
			return -ENOMEM;
		halves[later]->rows++;
	}
	return row == batch->rows && halves[0]->rows && halves[1]->rows ? 0 : -EBADMSG;
}

/* A half's token starts with the origin of the whole batch. */
static int seal_half(const struct batch *batch, struct batch *half, const char *table)
{
	char origin[DEDUP_TOKEN_MAX];

	dedup_token_origin(batch->token, table, batch->order, origin);
	return batch_seal(half, origin, table, batch->insert);
}

int batch_split(const struct batch *batch, const char *table, bool by_days, struct batch *ret[2])
{
	struct batch *halves[2] = { batch_new(), batch_new() };
	struct buffer text = { 0 };
	size_t depth = strlen(batch->part);
	int err = halves[0] && halves[1] ? 0 : -ENOMEM;

	if (!err && (batch->rows < 2 || depth >= BATCH_PART_MAX))
		err = -ENODATA;
	if (!err)
		err = batch_rows_text(batch, MAX_TEXT_BYTES, &text);
	for (int i = 0; !err && i < 2; i++) {
		halves[i]->order = batch->order;
		snprintf(halves[i]->part, sizeof(halves[i]->part), "%.*s%d", BATCH_PART_MAX - 1,
			 batch->part, i);
		halves[i]->opened_ns = batch->opened_ns;
		halves[i]->from_us = batch->from_us;
		halves[i]->to_us = batch->to_us;
		halves[i]->durable = batch->durable;
		halves[i]->state = BATCH_READY;
	}
	if (!err)
		err = distribute(batch, &text, by_days ? find_pivot(&text, batch->rows) : 0,
				 halves);
	for (int i = 0; !err && i < 2; i++)
		err = seal_half(batch, halves[i], table);
	buffer_free(&text);
	if (err) {
		batch_free(halves[0]);
		batch_free(halves[1]);
		return err;
	}
	ret[0] = halves[0];
	ret[1] = halves[1];
	return 0;
}
