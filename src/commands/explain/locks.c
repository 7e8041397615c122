// SPDX-License-Identifier: Apache-2.0
/* The holders of a lock, from the threads that ended waits. See locks.h. */
#include "commands/explain/locks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/message.h"
#include "commands/explain/timeline.h"
#include "commands/overlap.h"

enum { HOLDERS_MAX = 1000 };

const json_t *lock_longest_wait(const json_t *request)
{
	const json_t *wait, *longest = NULL;
	int64_t most_us = -1;
	size_t i;

	json_array_foreach (json_object_get(request, "waits"), i, wait) {
		int64_t us = explain_handled_us(request, wait);

		if (strcmp(explain_text(wait, "cause"), "lock") != 0 || us <= most_us)
			continue;
		most_us = us;
		longest = wait;
	}
	return longest;
}

/* Innermost functions of places: callers may differ, if the functions are known. */
static bool is_same_function(const char *a, const char *b)
{
	const char *caller = strstr(a, EXPLAIN_CALLED_FROM);
	size_t n = caller ? (size_t)(caller - a) : strlen(a);

	if (!strncmp(a, EXPLAIN_UNKNOWN_CODE, strlen(EXPLAIN_UNKNOWN_CODE)))
		return !strcmp(a, b);
	return !strncmp(a, b, n) &&
	       (!b[n] || !strncmp(b + n, EXPLAIN_CALLED_FROM, strlen(EXPLAIN_CALLED_FROM)));
}

/* By address; where an address is not known, by the place, which may have several locks. */
static bool is_same_lock(const json_t *row, const json_t *wait)
{
	const char *lock = explain_text(row, "lock"), *wanted = explain_text(wait, "lock");

	if (strcmp(explain_text(row, "cause"), "lock") != 0)
		return false;
	if (*lock && *wanted)
		return !strcmp(lock, wanted);
	return *explain_text(wait, "place") &&
	       is_same_function(explain_text(row, "place"), explain_text(wait, "place"));
}

/* The last wait of a thread for a lock that ended within (from, to): then the thread had the lock.
 */
static const json_t *taken_by(const json_t *rows, long long tid, const json_t *wait,
			      int64_t from_us, int64_t to_us)
{
	const json_t *row, *last = NULL;
	size_t i;

	json_array_foreach (rows, i, row) {
		int64_t end_us = explain_number(row, "end_us");

		if (explain_number(row, "tid") == tid && end_us > from_us && end_us < to_us &&
		    is_same_lock(row, wait))
			last = row;
	}
	return last;
}

/* What a thread waited for longest in a time: all its waits of one cause at one place together. */
static const json_t *did_meanwhile(const json_t *rows, long long tid, int64_t from_us,
				   int64_t to_us, int64_t *ret_us)
{
	const json_t *row, *longest = NULL;
	json_t *sums = json_object();
	char key[640];
	size_t i;

	*ret_us = 0;
	json_array_foreach (rows, i, row) {
		int64_t us = explain_overlap_us(row, from_us, to_us);

		if (explain_number(row, "tid") != tid || us <= 0)
			continue;
		snprintf(key, sizeof(key), "%s %s", explain_text(row, "cause"),
			 explain_text(row, "place"));
		us += json_integer_value(json_object_get(sums, key));
		json_object_set_new(sums, key, json_integer(us));
		if (us <= *ret_us)
			continue;
		*ret_us = us;
		longest = row;
	}
	json_decref(sums);
	return longest;
}

/* Functions of module threading that take a lock; its other functions wait for a message. */
static bool takes_lock(const char *place)
{
	static const char *const names[] = { "__enter__", "acquire", "_acquire_restore" };
	const char *end = strstr(place, " (");
	size_t n = end ? (size_t)(end - place) : 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t length = strlen(names[i]);

		if (n >= length && !strncmp(end - length, names[i], length) &&
		    (n == length || end[-(ptrdiff_t)length - 1] == '.'))
			return true;
	}
	return false;
}

bool lock_is_message(const json_t *wait)
{
	const char *place = explain_text(wait, "place"), *end = strchr(place, ')');
	const char *file = strstr(place, "/threading.py:");

	if (message_of(explain_text(wait, "library")))
		return true;
	return file && end && file < end && !takes_lock(place);
}

/* Keeps the longest first: the others are few. */
static void add_holder(json_t *holders, json_t *holder)
{
	size_t i = 0;

	while (i < json_array_size(holders) &&
	       explain_ms(json_array_get(holders, i), "held_ms") >= explain_ms(holder, "held_ms"))
		i++;
	json_array_insert_new(holders, i, holder);
}

static json_t *holder_of(const json_t *rows, const json_t *released, int64_t from_us, int64_t to_us)
{
	int64_t did_us;
	const json_t *did = did_meanwhile(rows, explain_number(released, "by_tid"), from_us, to_us,
					  &did_us);

	return json_pack(
		"{s:O, s:O, s:f, s:s, s:f, s:s}", "tid", json_object_get(released, "by_tid"),
		"thread_name", json_object_get(released, "by_name"), "held_ms",
		(double)(to_us - from_us) / 1000, "did", did ? explain_text(did, "cause") : "",
		"did_ms", (double)did_us / 1000, "place", did ? explain_text(did, "place") : "");
}

json_t *lock_holders(const json_t *request)
{
	const json_t *rows = json_object_get(request, "lock_waits");
	const json_t *wait = lock_longest_wait(request), *first = wait;
	int64_t from_us = explain_number(wait, "begin_us"), to_us = explain_number(wait, "end_us");
	json_t *holders = json_array();

	if (!wait || lock_is_message(wait))
		return holders;
	for (int n = 0; holders && wait && explain_number(wait, "by_tid") && n < HOLDERS_MAX; n++) {
		const json_t *taken = taken_by(rows, explain_number(wait, "by_tid"), first, from_us,
					       to_us);
		int64_t since_us = taken ? explain_number(taken, "end_us") : from_us;
		json_t *holder = holder_of(rows, wait, since_us, to_us);

		if (!holder) {
			json_decref(holders);
			return NULL;
		}
		add_holder(holders, holder);
		wait = taken;
		to_us = since_us;
	}
	return holders;
}

json_t *lock_queue(const json_t *request)
{
	const json_t *rows = json_object_get(request, "lock_waits"), *row;
	const json_t *wait = lock_longest_wait(request);
	int64_t from_us = explain_number(wait, "begin_us"), to_us = explain_number(wait, "end_us");
	AUTO_FREE int64_t *begins = calloc(json_array_size(rows) + 1, sizeof(*begins));
	AUTO_FREE int64_t *ends = calloc(json_array_size(rows) + 1, sizeof(*ends));
	int64_t at_us;
	size_t i, n = 0;

	if (!begins || !ends || !wait || !*explain_text(wait, "lock") || lock_is_message(wait))
		return json_null();
	json_array_foreach (rows, i, row) {
		if (!is_same_lock(row, wait) || explain_overlap_us(row, from_us, to_us) <= 0)
			continue;
		begins[n] = explain_number(row, "begin_us");
		ends[n++] = explain_number(row, "end_us");
	}
	return json_pack("{s:O, s:I, s:I}", "lock", json_object_get(wait, "lock"), "waits",
			 (json_int_t)n, "at_once",
			 (json_int_t)overlap_most(begins, ends, n, &at_us));
}
