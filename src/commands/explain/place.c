// SPDX-License-Identifier: Apache-2.0
/* Places of waits in words. See place.h. */
#include "commands/explain/place.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "commands/explain/timeline.h"

static struct place place_said(const char *name, int64_t us, const struct cause *c)
{
	struct place place = { "" };
	double ms = (double)us / 1000;

	if (!*name)
		return place;
	if (ms * 100 < c->ms * PLACE_SHARE_PERCENT)
		snprintf(place.text, sizeof(place.text), ", %.1f ms of it in %.300s", ms, name);
	else
		snprintf(place.text, sizeof(place.text), ", in %.300s", name);
	return place;
}

static int64_t us_at(const json_t *rows, const char *cause, const char *place)
{
	const json_t *row;
	int64_t us = 0;
	size_t i;

	json_array_foreach (rows, i, row) {
		if (!strcmp(explain_text(row, "cause"), cause) &&
		    !strcmp(explain_text(row, "place"), place))
			us += explain_number(row, "end_us") - explain_number(row, "begin_us");
	}
	return us;
}

struct place place_of(const json_t *r, const struct cause *c, const char *cause)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, "places"), i, row) { /* longest first */
		if (!strcmp(explain_text(row, "cause"), cause))
			return place_said(explain_text(row, "place"), explain_number(row, "us"), c);
	}
	return (struct place){ "" };
}

struct place place_of_wait(const json_t *r, const struct cause *c, const json_t *wait)
{
	const char *place = wait ? explain_text(wait, "place") : "";

	return place_said(place, us_at(json_object_get(r, "waits"), "lock", place), c);
}
