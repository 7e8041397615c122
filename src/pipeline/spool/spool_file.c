// SPDX-License-Identifier: Apache-2.0
/* The format of a spool file. See spool_file.h. */
#include "pipeline/spool/spool_file.h"

#include "pipeline/deflate.h"

static const char magic[8] = { 'u', 's', 'p', 'a', 'n', ' ', '0' + SPOOL_VERSION, '\n' };

/* Host byte order: a spool is not portable. Both checksums are crc32, as gzip's. */
struct spool_header {
	char magic[8];
	uint32_t header_crc; /* of the bytes after this field, up to the body */
	uint32_t body_crc;
	uint64_t body_len;
	uint64_t order, rows;
	uint64_t from_us, to_us;
	uint32_t table_len, token_len, insert_len; /* strings in this order, without NULs */
	uint32_t zero;
};

enum { CRC_FROM = offsetof(struct spool_header, body_crc) };
enum { MAX_STRINGS = 64 << 10, MAX_BODY = 256 << 20 };

static uint32_t checksum(const void *bytes, size_t len)
{
	return deflate_crc32(0, bytes, len);
}

static bool is_table_name(const char *s)
{
	return *s && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
			     strlen(s);
}

static bool parse_number(const char **at, int base, uint64_t *ret)
{
	char *end;

	if (!(**at >= '0' && **at <= '9') && !(base == 16 && **at >= 'a' && **at <= 'f'))
		return false;
	errno = 0;
	*ret = strtoull(*at, &end, base);
	*at = end;
	return errno == 0;
}

bool spool_name_parse(const char *text, struct spool_name *ret)
{
	struct spool_name name = { 0 };
	size_t len = 0;

	if (strspn(text, "0123456789abcdef") != 16 || !parse_number(&text, 16, &name.order))
		return false;
	if (*text == '-') {
		len = strspn(++text, "01");
		if (!len || len > BATCH_PART_MAX)
			return false;
		memcpy(name.part, text, len);
		text += len;
	}
	if (*text++ != '.' || !parse_number(&text, 10, &name.rows) || !name.rows || *text++ != '.')
		return false;
	if (strlen(text) >= sizeof(name.table) || !is_table_name(text))
		return false;
	strcpy(name.table, text);
	*ret = name;
	return true;
}

void spool_name_print(const struct batch *batch, const char *table, char ret[SPOOL_NAME_MAX])
{
	snprintf(ret, SPOOL_NAME_MAX, "%016llx%s%s.%llu.%s", (unsigned long long)batch->order,
		 *batch->part ? "-" : "", batch->part, (unsigned long long)batch->rows, table);
}

int spool_file_header(const struct batch *batch, const char *table, struct buffer *ret_header)
{
	struct spool_header h = {
		.body_crc = checksum(batch->body.data, batch->body.len),
		.body_len = batch->body.len,
		.order = batch->order,
		.rows = batch->rows,
		.from_us = batch->from_us,
		.to_us = batch->to_us,
		.table_len = (uint32_t)strlen(table),
		.token_len = (uint32_t)strlen(batch->token),
		.insert_len = (uint32_t)strlen(batch->insert),
	};
	struct buffer out = { 0 };

	memcpy(h.magic, magic, sizeof(magic));
	if (buffer_append(&out, &h, sizeof(h)) || buffer_append(&out, table, h.table_len) ||
	    buffer_append(&out, batch->token, h.token_len) ||
	    buffer_append(&out, batch->insert, h.insert_len)) {
		buffer_free(&out);
		return -ENOMEM;
	}
	h.header_crc = checksum(out.data + CRC_FROM, out.len - CRC_FROM);
	memcpy(out.data, &h, sizeof(h));
	*ret_header = out;
	return 0;
}

/* Checks everything except the strings' meaning. Checksums are verified first. */
static int check_frame(const struct buffer *file, struct spool_header *h, size_t *ret_header_len,
		       struct why *why)
{
	uint64_t strings;

	if (file->len < sizeof(*h))
		return why_fail(why, EBADMSG, "the file ends within the header");
	memcpy(h, file->data, sizeof(*h));
	if (memcmp(h->magic, magic, sizeof(magic)) != 0)
		return why_fail(why, EBADMSG, "the file does not begin as a batch of this version");
	strings = (uint64_t)h->table_len + h->token_len + h->insert_len;
	if (strings > MAX_STRINGS || strings > file->len - sizeof(*h) ||
	    checksum(file->data + CRC_FROM, sizeof(*h) + strings - CRC_FROM) != h->header_crc)
		return why_fail(why, EBADMSG, "the header is torn or corrupt");
	*ret_header_len = sizeof(*h) + strings;
	if (h->body_len > MAX_BODY || h->body_len != file->len - *ret_header_len)
		return why_fail(why, EBADMSG, "the file holds %zu of the body's %llu bytes",
				file->len - *ret_header_len, (unsigned long long)h->body_len);
	if (checksum(file->data + *ret_header_len, h->body_len) != h->body_crc)
		return why_fail(why, EBADMSG, "the body is corrupt");
	return 0;
}

int spool_file_decode(const struct buffer *file, const struct spool_name *name, struct batch *batch,
		      struct why *why)
{
	struct buffer body = { 0 };
	struct spool_header h;
	const char *strings;
	size_t header_len;
	char *token, *insert;
	int err = check_frame(file, &h, &header_len, why);

	if (err)
		return err;
	strings = file->data + sizeof(h);
	if (h.order != name->order || h.rows != name->rows || h.zero ||
	    h.table_len != strlen(name->table) || memcmp(strings, name->table, h.table_len) != 0 ||
	    !h.token_len || h.token_len >= DEDUP_TOKEN_MAX || !h.insert_len ||
	    memchr(strings, '\0', header_len - sizeof(h)))
		return why_fail(why, EBADMSG, "the name does not match the header");
	token = strndup(strings + h.table_len, h.token_len);
	insert = strndup(strings + h.table_len + h.token_len, h.insert_len);
	if (!token || !insert || buffer_append(&body, file->data + header_len, h.body_len)) {
		free(token);
		free(insert);
		return why_fail(why, ENOMEM, "out of memory");
	}
	batch_unload(batch);
	batch->token = token;
	batch->insert = insert;
	batch->body = body;
	batch->from_us = h.from_us;
	batch->to_us = h.to_us;
	return 0;
}
