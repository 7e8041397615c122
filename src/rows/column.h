/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Column tables: each database table lists its columns once, with ClickHouse type and offset in the
 * row struct. Used by the JSON writer, the INSERT's column list, the check against sql/tables/ and
 * stdout.
 */
#ifndef UNDERSPAN_ROWS_COLUMN_H
#define UNDERSPAN_ROWS_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum column_kind {
	COLUMN_U8,
	COLUMN_U16,
	COLUMN_U32,
	COLUMN_U64,
	COLUMN_MAYBE_U64, /* struct column_maybe_u64 */
	COLUMN_S8,
	COLUMN_F32,
	COLUMN_CHARS,	/* char[size], up to NUL or size */
	COLUMN_STRING,	/* const char *; NULL is '' */
	COLUMN_STRINGS, /* struct column_strings */
	COLUMN_NUMBERS, /* struct column_numbers */
	COLUMN_PAIRS,	/* struct column_pairs; `names`: names of the members */
	COLUMN_ENUM,	/* uint8_t, index into `names` */
	COLUMN_IP,	/* uint8_t[16] */
	COLUMN_TIME,	/* uint64_t, CLOCK_MONOTONIC ns; sent as microseconds since the epoch */
};

/* A Nullable(UInt64): unreadable values are NULL, never 0. */
struct column_maybe_u64 {
	uint64_t value;
	bool known;
};

struct column_strings {
	const char *const *items;
	size_t n;
};

struct column_numbers {
	const uint64_t *items;
	size_t n;
};

/* Array(Tuple(first, second)); with three names, a text is the third member */
struct column_pair {
	uint64_t values[2];
	const char *text;
};
struct column_pairs {
	const struct column_pair *items;
	size_t n;
};

/* A column's name as a key of JSON, `"name":`; longer names do not compile. */
enum { COLUMN_KEY_MAX = 48 };

struct column {
	const char *name;
	char key[COLUMN_KEY_MAX];
	uint8_t key_len;
	const char *type; /* as in the DDL */
	enum column_kind kind;
	uint32_t offset, size;
	const char *const *names; /* COLUMN_ENUM: names of the values */
	size_t n_names;
};

#define COLUMN_KEY(name_) "\"" name_ "\":"
#define COLUMN(kind_, row, member, name_, type_)                                                   \
	{ .name = (name_),                                                                         \
	  .key = COLUMN_KEY(name_),                                                                \
	  .key_len = sizeof(COLUMN_KEY(name_)) - 1,                                                \
	  .type = (type_),                                                                         \
	  .kind = (kind_),                                                                         \
	  .offset = offsetof(row, member),                                                         \
	  .size = sizeof(((row *)0)->member) }
#define COLUMN_NAMED(row, member, name_, names_)                                                   \
	{ .name = (name_),                                                                         \
	  .key = COLUMN_KEY(name_),                                                                \
	  .key_len = sizeof(COLUMN_KEY(name_)) - 1,                                                \
	  .type = "LowCardinality(String)",                                                        \
	  .kind = COLUMN_ENUM,                                                                     \
	  .offset = offsetof(row, member),                                                         \
	  .size = sizeof(((row *)0)->member),                                                      \
	  .names = (names_),                                                                       \
	  .n_names = sizeof(names_) / sizeof((names_)[0]) }

#define COLUMN_PAIRS_NAMED(row, member, name_, type_, names_)                                      \
	{ .name = (name_),                                                                         \
	  .key = COLUMN_KEY(name_),                                                                \
	  .key_len = sizeof(COLUMN_KEY(name_)) - 1,                                                \
	  .type = (type_),                                                                         \
	  .kind = COLUMN_PAIRS,                                                                    \
	  .offset = offsetof(row, member),                                                         \
	  .size = sizeof(((row *)0)->member),                                                      \
	  .names = (names_),                                                                       \
	  .n_names = sizeof(names_) / sizeof((names_)[0]) }

/* A database table: common columns first (per-thread tables), then its own columns. */
struct table {
	const char *name; /* "ebpf_handoff" */
	const struct column *columns[2];
	size_t n_columns[2];
};

/* ---- access to rows of other trackers, by column ---- */

/* NULL: no column of this name. */
const struct column *column_find(const struct table *table, const char *name);

/* The value; 0 for NULL and for columns that are not numbers. */
uint64_t column_uint(const struct column *column, const void *row);

/* False: the column is missing, or its value is NULL. */
bool column_is_known(const struct column *column, const void *row);

/* Text of COLUMN_CHARS, _STRING or _ENUM in `buf`, truncated; '' for other columns. Returns buf. */
const char *column_text(const struct column *column, const void *row, char *buf, size_t size);

/* COLUMN_STRINGS and COLUMN_PAIRS; empty for other columns. */
struct column_strings column_strings(const struct column *column, const void *row);
struct column_pairs column_pairs(const struct column *column, const void *row);

#endif
