// SPDX-License-Identifier: Apache-2.0
/* Places of waits and of computation in words. See place.h. */
#include "commands/explain/place.h"

#include <stdio.h>
#include <string.h>

#include "commands/explain/timeline.h"
#include "base/util.h"

/* The longest sum of a cause, at a place or at any (NULL). */
static const json_t *longest_at(const json_t *r, const char *cause, const char *place)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, "places"), i, row) { /* longest first */
		if (!strcmp(explain_text(row, "cause"), cause) &&
		    (!place || !strcmp(explain_text(row, "place"), place)))
			return row;
	}
	return NULL;
}

static struct place place_at(const json_t *sum, const struct cause *c)
{
	const char *name = sum ? explain_text(sum, "place") : "";
	double ms = (double)explain_number(sum, "us") / 1000;
	struct place place = { "" };

	if (!*name)
		return place;
	if (ms * 100 < c->ms * PLACE_SHARE_PERCENT)
		snprintf(place.text, sizeof(place.text), ", %.1f ms of it in %.300s", ms, name);
	else
		snprintf(place.text, sizeof(place.text), ", in %.300s", name);
	return place;
}

/*
 * By the sums of the thread: of waits that are too short for rows, or that the governor left out.
 * Not where a stall of the loop has the code: the sums are of all requests of the loop. Other
 * requests of the thread may have waited in that code: of the time that those with the request's
 * path waited so, half at least must be there, wherever the rest of the thread's time was.
 */
static struct place place_in_profile(const json_t *r, const char *cause)
{
	struct place place = { "" };
	const json_t *row;
	size_t i;

	if (cause_has_stall(r, "handled_us", "to_us", cause))
		return place;
	json_array_foreach (json_object_get(r, "profile"), i, row) {
		double elsewhere = explain_ms(row, "all_ms") - explain_ms(row, "ms");
		double alike = explain_ms(row, "alike_ms");

		if (!strcmp(explain_text(row, "cause"), cause) && alike > 0 &&
		    elsewhere * 2 <= alike)
			snprintf(
				place.text, sizeof(place.text),
				", in waits without a row that names the code; of all such time of its "
				"thread in those %.0f s, %.0f %% in %.240s",
				explain_ms(row, "seconds"), explain_ms(row, "percent"),
				explain_text(row, "place"));
	}
	return place;
}

bool place_has_row(const json_t *r, const char *cause)
{
	const json_t *wait;
	size_t i;

	json_array_foreach (json_object_get(r, "waits"), i, wait) {
		if (!strcmp(explain_text(wait, "cause"), cause) && *explain_text(wait, "place"))
			return true;
	}
	return false;
}

bool place_imports(const char *place)
{
	return !strncmp(place, "<module> (", strlen("<module> (")) ||
	       strstr(place, "(<frozen importlib._bootstrap");
}

struct place place_of(const json_t *r, const struct cause *c, const char *cause)
{
	const json_t *sum = longest_at(r, cause, NULL);

	return sum ? place_at(sum, c) : place_in_profile(r, cause);
}

size_t place_waits(const json_t *r, const char *cause)
{
	const json_t *sum = longest_at(r, cause, NULL), *wait;
	size_t i, n = 0;

	json_array_foreach (json_object_get(r, "waits"), i, wait)
		n += sum && !strcmp(explain_text(wait, "cause"), cause) &&
		     !strcmp(explain_text(wait, "place"), explain_text(sum, "place"));
	return n;
}

struct place place_of_computation(const json_t *r)
{
	const json_t *computed = json_object_get(r, "computed"), *row;
	const json_t *most = json_array_get(computed, 0);
	struct place place = { "" };
	long long all = 0;
	size_t i;

	json_array_foreach (computed, i, row)
		all += explain_number(row, "n");
	if (most)
		snprintf(place.text, sizeof(place.text), ", %lld of %lld sample%s in %.300s",
			 (long long)explain_number(most, "n"), all, plural(all),
			 explain_text(most, "place"));
	return place;
}

struct place place_of_wait(const json_t *r, const struct cause *c, const json_t *wait)
{
	return wait ? place_at(longest_at(r, "lock", explain_text(wait, "place")), c)
		    : place_in_profile(r, "lock");
}
