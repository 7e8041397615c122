/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row is a column table, not code: each table lists its columns once, with the ClickHouse type
 * and where the value lies in the row's struct. The JSON writer, the INSERT's column list, the
 * check against sql/tables/ and stdout all walk this.
 */
#ifndef UNDERSPAN_COLUMN_H
#define UNDERSPAN_COLUMN_H

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
	COLUMN_CHARS,	/* char[size], ends at NUL or size */
	COLUMN_STRING,	/* const char *; NULL is '' */
	COLUMN_STRINGS, /* struct column_strings */
	COLUMN_PAIRS,	/* struct column_pairs; `names` are the members' names */
	COLUMN_ENUM,	/* uint8_t, index into `names` */
	COLUMN_IP,	/* uint8_t[16] */
	COLUMN_TIME,	/* uint64_t, CLOCK_MONOTONIC ns; sent as microseconds since the epoch */
};

/* A Nullable(UInt64): what could not be read is NULL, never 0. */
struct column_maybe_u64 {
	uint64_t value;
	bool known;
};

struct column_strings {
	const char *const *items;
	size_t n;
};

/* Array(Tuple(first, second)), or with a text as the third where there are three names */
struct column_pair {
	uint64_t values[2];
	const char *text;
};
struct column_pairs {
	const struct column_pair *items;
	size_t n;
};

struct column {
	const char *name;
	const char *type; /* as the DDL spells it */
	enum column_kind kind;
	uint32_t offset, size;
	const char *const *names; /* COLUMN_ENUM: what the numbers mean */
	size_t n_names;
};

#define COLUMN(kind_, row, member, name_, type_)                                                   \
	{ .name = (name_),                                                                         \
	  .type = (type_),                                                                         \
	  .kind = (kind_),                                                                         \
	  .offset = offsetof(row, member),                                                         \
	  .size = sizeof(((row *)0)->member) }
#define COLUMN_NAMED(row, member, name_, names_)                                                   \
	{ .name = (name_),                                                                         \
	  .type = "LowCardinality(String)",                                                        \
	  .kind = COLUMN_ENUM,                                                                     \
	  .offset = offsetof(row, member),                                                         \
	  .size = sizeof(((row *)0)->member),                                                      \
	  .names = (names_),                                                                       \
	  .n_names = sizeof(names_) / sizeof((names_)[0]) }

#define COLUMN_PAIRS_NAMED(row, member, name_, type_, names_)                                      \
	{ .name = (name_),                                                                         \
	  .type = (type_),                                                                         \
	  .kind = COLUMN_PAIRS,                                                                    \
	  .offset = offsetof(row, member),                                                         \
	  .size = sizeof(((row *)0)->member),                                                      \
	  .names = (names_),                                                                       \
	  .n_names = sizeof(names_) / sizeof((names_)[0]) }

/* A table of the database: common columns first (per-thread tables), then its own. */
struct table {
	const char *name; /* "ebpf_handoff" */
	const struct column *columns[2];
	size_t n_columns[2];
};

/* ---- reading a row by its columns, for who is not the tracker that made it ---- */

/* NULL: the table has no column of this name. */
const struct column *column_find(const struct table *table, const char *name);

/* The value; 0 of what is no number, or NULL. */
uint64_t column_uint(const struct column *column, const void *row);

/* COLUMN_CHARS, _STRING or _ENUM into `buf`, cut at its size; returns buf. '' of anything else. */
const char *column_text(const struct column *column, const void *row, char *buf, size_t size);

/* COLUMN_STRINGS and COLUMN_PAIRS; empty of anything else. */
struct column_strings column_strings(const struct column *column, const void *row);
struct column_pairs column_pairs(const struct column *column, const void *row);

#endif
