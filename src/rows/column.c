// SPDX-License-Identifier: Apache-2.0
/* Access to rows by column. See column.h. */
#include "rows/column.h"

#include <stdio.h>
#include <string.h>

const struct column *column_find(const struct table *table, const char *name)
{
	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; i < table->n_columns[part]; i++) {
			if (!strcmp(table->columns[part][i].name, name))
				return &table->columns[part][i];
		}
	}
	return NULL;
}

static const void *value_of(const struct column *column, const void *row)
{
	return (const char *)row + column->offset;
}

uint64_t column_uint(const struct column *column, const void *row)
{
	const void *at = column ? value_of(column, row) : NULL;
	const struct column_maybe_u64 *maybe = at;

	if (!at)
		return 0;
	switch (column->kind) {
	case COLUMN_U8:
		return *(const uint8_t *)at;
	case COLUMN_U16:
		return *(const uint16_t *)at;
	case COLUMN_U32:
		return *(const uint32_t *)at;
	case COLUMN_U64:
	case COLUMN_TIME:
		return *(const uint64_t *)at;
	case COLUMN_MAYBE_U64:
		return maybe->known ? maybe->value : 0;
	default:
		return 0;
	}
}

bool column_is_known(const struct column *column, const void *row)
{
	const struct column_maybe_u64 *maybe;

	if (!column || column->kind != COLUMN_MAYBE_U64)
		return column;
	maybe = value_of(column, row);
	return maybe->known;
}

const char *column_text(const struct column *column, const void *row, char *buf, size_t size)
{
	const void *at = column ? value_of(column, row) : NULL;
	const char *text = NULL;
	size_t max = size - 1;
	uint8_t index;

	if (at && column->kind == COLUMN_CHARS) {
		text = at;
		if (max > column->size)
			max = column->size;
	} else if (at && column->kind == COLUMN_STRING) {
		text = *(const char *const *)at;
	} else if (at && column->kind == COLUMN_ENUM) {
		index = *(const uint8_t *)at;
		text = index < column->n_names ? column->names[index] : NULL;
	}
	snprintf(buf, size, "%.*s", (int)max, text ? text : "");
	return buf;
}

struct column_strings column_strings(const struct column *column, const void *row)
{
	if (!column || column->kind != COLUMN_STRINGS)
		return (struct column_strings){ 0 };
	return *(const struct column_strings *)value_of(column, row);
}

struct column_pairs column_pairs(const struct column *column, const void *row)
{
	if (!column || column->kind != COLUMN_PAIRS)
		return (struct column_pairs){ 0 };
	return *(const struct column_pairs *)value_of(column, row);
}
