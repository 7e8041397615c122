// SPDX-License-Identifier: Apache-2.0
/* Rows of a live measurement. See live.h. */
#include "commands/timeline/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { FRAMES_MAX = 40, TEXT_BYTES = 4000 };

/* "nap (app.py:3) < work (app.py:5)" */
static json_t *json_of_frames(struct column_strings stack)
{
	char text[TEXT_BYTES] = "";
	size_t n = 0;

	for (size_t i = 0; i < stack.n && i < FRAMES_MAX && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " < " : "",
				      stack.items[i]);
	return json_stringn_nocheck(text, strlen(text));
}

static json_t *json_of_pairs(const struct column *c, struct column_pairs pairs)
{
	json_t *array = json_array();

	for (size_t i = 0; i < pairs.n; i++) {
		json_t *pair = json_object();

		for (size_t member = 0; member < 2; member++)
			json_object_set_new(
				pair, c->names[member],
				json_integer((json_int_t)pairs.items[i].values[member]));
		if (c->n_names > 2 && pairs.items[i].text)
			json_object_set_new_nocheck(pair, c->names[2],
						    json_string_nocheck(pairs.items[i].text));
		json_array_append_new(array, pair);
	}
	return array;
}

static json_t *json_of(const struct column *c, const void *row)
{
	const void *at = (const char *)row + c->offset;
	char text[TEXT_BYTES];

	switch (c->kind) {
	case COLUMN_U8:
	case COLUMN_U16:
	case COLUMN_U32:
	case COLUMN_U64:
	case COLUMN_MAYBE_U64:
		if (!column_is_known(c, row))
			return json_null();
		return json_integer((json_int_t)column_uint(c, row));
	case COLUMN_S8:
		return json_integer(*(const int8_t *)at);
	case COLUMN_F32:
		return json_real((double)*(const float *)at);
	case COLUMN_CHARS:
	case COLUMN_STRING:
	case COLUMN_ENUM:
		return json_string_nocheck(column_text(c, row, text, sizeof(text)));
	case COLUMN_PAIRS:
		return json_of_pairs(c, column_pairs(c, row));
	default:
		return NULL;
	}
}

static void add(json_t *object, const struct column *c, const void *row)
{
	char name[64];
	size_t stem = strlen(c->name) - strlen("_stack");

	if (c->kind == COLUMN_STRINGS && strlen(c->name) > 6 && !strcmp(c->name + stem, "_stack")) {
		snprintf(name, sizeof(name), "%.*s_frames", (int)stem, c->name);
		json_object_set_new(object, name, json_of_frames(column_strings(c, row)));
	} else if (!strcmp(c->name, "start_time")) {
		json_object_set_new(object, "start_us",
				    json_integer((json_int_t)clock_wall_us(column_uint(c, row))));
	} else if (!strcmp(c->name, "request_id")) { /* as in requests and explain: a text */
		snprintf(name, sizeof(name), "%" PRIu64, column_uint(c, row));
		json_object_set_new(object, c->name, json_string(name));
	} else {
		json_t *value = json_of(c, row);

		if (value)
			json_object_set_new(object, c->name, value);
	}
}

json_t *timeline_live_row(const struct table *table, const void *row)
{
	json_t *object = json_object();

	for (size_t part = 0; part < 2 && object; part++) {
		for (size_t i = 0; i < table->n_columns[part]; i++)
			add(object, &table->columns[part][i], row);
	}
	return object;
}
