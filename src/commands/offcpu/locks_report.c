// SPDX-License-Identifier: Apache-2.0
/* Sums by lock, and storms. See locks.h. */
#include "commands/offcpu/locks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "commands/overlap.h"

/* A storm: so many threads at once. A herd: so many threads woken by one within HERD_US. */
enum { STORM_THREADS = 10, HERD_US = 10000, LOCKS_MAX = 200, STORMS_MAX = 20, LIST_MAX = 20 };

static int compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int compare_pointers(const void *a, const void *b)
{
	return compare((int64_t)(intptr_t)a, (int64_t)(intptr_t)b);
}

static int compare_groups(const struct lock_group *a, const struct lock_group *b)
{
	return compare_pointers(a->process, b->process)		     ?:
	       compare(a->host_pid, b->host_pid)		     ?:
	       compare(a->message, b->message)			     ?:
	       (a->address > b->address) - (a->address < b->address) ?:
	       compare_pointers(a->place, b->place);
}

static int by_group(const void *a, const void *b)
{
	const struct lock_record *x = a, *y = b;

	return compare(x->idle, y->idle)	      ?:
	       compare_groups(&x->of, &y->of)	      ?:
	       compare(x->wake_us, y->wake_us)	      ?:
	       compare(x->begin_us, y->begin_us)      ?:
	       compare(x->host_tid, y->host_tid);
}

static int by_waker(const void *a, const void *b)
{
	const struct lock_record *x = a, *y = b;

	return compare_pointers(x->of.process, y->of.process)	 ?:
	       compare(x->waker_host_tid, y->waker_host_tid)	 ?:
	       compare(x->wake_us, y->wake_us)			 ?:
	       compare(x->host_tid, y->host_tid);
}

/* ---- a lock ---- */

static int by_number(const void *a, const void *b)
{
	return compare(*(const int64_t *)a, *(const int64_t *)b);
}

struct queue {
	size_t threads; /* that waited at the same time, at most */
	int64_t at_us;
};

static int longest_queue(const struct lock_record *r, size_t n, struct queue *ret)
{
	AUTO_FREE int64_t *begins = calloc(n, sizeof(*begins));
	AUTO_FREE int64_t *wakes = calloc(n, sizeof(*wakes));

	if (!begins || !wakes)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		begins[i] = r[i].begin_us;
		wakes[i] = r[i].wake_us;
	}
	ret->threads = overlap_most(begins, wakes, n, &ret->at_us);
	return 0;
}

/* 0: out of memory. */
static size_t count_threads(const struct lock_record *r, size_t n)
{
	int64_t *tids = calloc(n, sizeof(*tids));
	size_t threads = 0;

	if (!tids)
		return 0;
	for (size_t i = 0; i < n; i++)
		tids[i] = r[i].host_tid;
	qsort(tids, n, sizeof(*tids), by_number);
	for (size_t i = 0; i < n; i++)
		threads += !i || tids[i] != tids[i - 1];
	free(tids);
	return threads;
}

/* A sum of a lock by thread or by place. */
struct part {
	uint64_t key;
	const struct lock_text *text;
	double times, us;
	UT_hash_handle hh;
};

static void free_parts(struct part **parts)
{
	struct part *part, *next;

	HASH_ITER(hh, *parts, part, next)
	{
		HASH_DEL(*parts, part);
		free(part);
	}
}

static struct part *part_of(struct part **parts, uint64_t key, const struct lock_text *text)
{
	struct part *part;

	HASH_FIND(hh, *parts, &key, sizeof(key), part);
	if (part)
		return part;
	part = calloc(1, sizeof(*part));
	if (!part)
		return NULL;
	part->key = key;
	part->text = text;
	HASH_ADD(hh, *parts, key, sizeof(part->key), part);
	return part;
}

static int by_time(const struct part *a, const struct part *b)
{
	return (a->us < b->us) - (a->us > b->us)	     ?:
	       (a->times < b->times) - (a->times > b->times) ?:
	       (a->key > b->key) - (a->key < b->key);
}

static json_t *json_of_parts(struct part **parts, json_t *(*json_of)(const struct part *))
{
	json_t *list = json_array();

	HASH_SORT(*parts, by_time);
	for (struct part *part = *parts; part && json_array_size(list) < LIST_MAX;
	     part = part->hh.next) {
		if (json_array_append_new(list, json_of(part)))
			break;
	}
	free_parts(parts);
	return list;
}

static json_t *json_of_place(const struct part *p)
{
	return json_pack("{s:s, s:f, s:f}", "place", p->text->text, "waits", p->times, "ms",
			 p->us / 1000);
}

static json_t *json_of_waker(const struct part *p)
{
	return json_pack("{s:s, s:I, s:f, s:f}", "thread", p->text->text, "host_tid",
			 (json_int_t)p->key, "times", p->times, "held_ms", p->us / 1000);
}

static json_t *json_of_sender(const struct part *p)
{
	return json_pack("{s:s, s:I, s:f, s:n}", "thread", p->text->text, "host_tid",
			 (json_int_t)p->key, "times", p->times, "held_ms");
}

/* NULL: out of memory. */
static json_t *places_of(const struct lock_record *r, size_t n)
{
	struct part *parts = NULL;

	for (size_t i = 0; i < n; i++) {
		struct part *part = part_of(&parts, (uintptr_t)r[i].place, r[i].place);

		if (!part) {
			free_parts(&parts);
			return NULL;
		}
		part->times += r[i].weight;
		part->us += (double)(r[i].end_us - r[i].begin_us) * r[i].weight;
	}
	return json_of_parts(&parts, json_of_place);
}

/* Begin of the earliest wait among those not yet woken, for each record; in order of wake-up. */
static int64_t *open_since(const struct lock_record *r, size_t n)
{
	int64_t *since = calloc(n, sizeof(*since));

	for (size_t i = n; since && i-- > 0;)
		since[i] = i + 1 < n && since[i + 1] < r[i].begin_us ? since[i + 1] : r[i].begin_us;
	return since;
}

/* NULL: out of memory. */
static json_t *wakers_of(const struct lock_record *r, size_t n, bool known)
{
	struct part *parts = NULL;
	AUTO_FREE int64_t *since = open_since(r, n);
	int64_t last = INT64_MIN;

	for (size_t i = 0; since && i < n; i++) {
		struct part *part;

		if (!r[i].waker_host_tid)
			continue;
		part = part_of(&parts, r[i].waker_host_tid, r[i].waker);
		if (!part) {
			free_parts(&parts);
			return NULL;
		}
		part->times += r[i].weight;
		part->us += (double)(r[i].wake_us - (last > since[i] ? last : since[i]));
		last = r[i].wake_us;
	}
	if (!since)
		return NULL;
	return json_of_parts(&parts, known ? json_of_waker : json_of_sender);
}

/* Whether waits are missing for which the weights of others stand. */
static bool is_sampled(const struct lock_record *r, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (r[i].weight > 1)
			return true;
	}
	return false;
}

/* Takes the reference of `places`. */
static json_t *pack_lock(const struct lock_record *r, size_t n, const struct queue *queue,
			 json_t *places)
{
	size_t threads = count_threads(r, n);
	json_t *wakers = threads ? wakers_of(r, n, r->of.address != 0) : NULL;
	double waits = 0, us = 0;
	int64_t longest = 0;
	char address[32];

	if (!wakers) {
		json_decref(places);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		int64_t length = r[i].end_us - r[i].begin_us;

		waits += r[i].weight;
		us += (double)length * r[i].weight;
		longest = length > longest ? length : longest;
	}
	snprintf(address, sizeof(address), "0x%" PRIx64, r->of.address);
	return json_pack("{s:s?, s:b, s:b, s:s#, s:I, s:O, s:f, s:f, s:f, s:I, s:I, s:I, s:o, s:o}",
			 "address", r->of.address ? address : NULL, "message", r->of.message,
			 "sampled", is_sampled(r, n), "host", r->of.process->text,
			 (int)strcspn(r->of.process->text, "\n"), "host_pid",
			 (json_int_t)r->of.host_pid, "place",
			 json_object_get(json_array_get(places, 0), "place"), "waits", waits, "ms",
			 us / 1000, "longest_ms", (double)longest / 1000, "threads",
			 (json_int_t)threads, "at_once", (json_int_t)queue->threads, "at_us",
			 (json_int_t)queue->at_us, "wakers", wakers, "places", places);
}

/* NULL: out of memory. */
static json_t *json_of_lock(const struct lock_record *r, size_t n)
{
	struct queue queue;
	json_t *places = longest_queue(r, n, &queue) ? NULL : places_of(r, n);

	return places ? pack_lock(r, n, &queue, places) : NULL;
}

/* ---- storms ---- */

static json_t *convoy_of(const json_t *lock)
{
	json_int_t threads = json_integer_value(json_object_get(lock, "at_once"));
	const char *address = json_string_value(json_object_get(lock, "address"));
	char said[600];

	if (!address || threads < STORM_THREADS)
		return NULL;
	snprintf(said, sizeof(said),
		 "lock convoy: %lld threads waited at once for lock %s, in %.300s (%.0f waits, "
		 "%.1f ms in all)",
		 (long long)threads, address,
		 json_string_value(json_object_get(lock, "place")) ?: "",
		 json_number_value(json_object_get(lock, "waits")),
		 json_number_value(json_object_get(lock, "ms")));
	return json_pack("{s:s, s:I, s:O, s:O, s:s, s:O, s:s}", "kind", "convoy", "threads",
			 threads, "host_pid", json_object_get(lock, "host_pid"), "at_us",
			 json_object_get(lock, "at_us"), "address", address, "place",
			 json_object_get(lock, "place"), "said", said);
}

/* Wake-ups of a waker within a short time. */
static size_t run_length(const struct lock_record *r, size_t n)
{
	size_t i = 1;

	while (i < n && r[i].of.process == r->of.process &&
	       r[i].waker_host_tid == r->waker_host_tid && r[i].wake_us - r->wake_us <= HERD_US)
		i++;
	return i;
}

static json_t *json_of_herd(const struct lock_record *r, size_t n)
{
	int64_t us = r[n - 1].wake_us - r->wake_us;
	size_t threads = count_threads(r, n);

	if (!r->waker_host_tid || threads < STORM_THREADS)
		return NULL;
	return json_pack("{s:s, s:I, s:I, s:I, s:n, s:s, s:s, s:I, s:I}", "kind", "herd", "threads",
			 (json_int_t)threads, "host_pid", (json_int_t)r->of.host_pid, "at_us",
			 (json_int_t)r->wake_us, "address", "place", r->place->text, "waker",
			 r->waker->text, "within_us", (json_int_t)us, "times", (json_int_t)1);
}

static json_int_t figure(const json_t *storm, const char *key)
{
	return json_integer_value(json_object_get(storm, key));
}

static void say_herd(json_t *storm)
{
	json_int_t times = figure(storm, "times");
	char said[600], again[48] = "";

	if (times > 1)
		snprintf(again, sizeof(again), "; %lld times, this the most", (long long)times);
	snprintf(said, sizeof(said),
		 "thundering herd: thread %.60s woke %lld threads within %.1f ms, in %.300s%s",
		 json_string_value(json_object_get(storm, "waker")),
		 (long long)figure(storm, "threads"), (double)figure(storm, "within_us") / 1000,
		 json_string_value(json_object_get(storm, "place")), again);
	json_object_set_new(storm, "said", json_string(said));
}

/* Of the same waker and place. -1: none. */
static int find_herd(const json_t *storms, const json_t *herd)
{
	static const char *const same[] = { "kind", "host_pid", "waker", "place" };
	const json_t *storm;
	size_t i, k;

	json_array_foreach (storms, i, storm) {
		for (k = 0; k < ARRAY_SIZE(same); k++) {
			if (!json_equal(json_object_get(storm, same[k]),
					json_object_get(herd, same[k])))
				break;
		}
		if (k == ARRAY_SIZE(same))
			return (int)i;
	}
	return -1;
}

/* The largest first. */
static void add_storm(json_t *storms, json_t *storm)
{
	json_int_t threads = json_integer_value(json_object_get(storm, "threads"));
	size_t i = 0;

	if (!storm)
		return;
	while (i < json_array_size(storms) &&
	       json_integer_value(json_object_get(json_array_get(storms, i), "threads")) >= threads)
		i++;
	json_array_insert_new(storms, i, storm);
	json_array_remove(storms, STORMS_MAX);
}

/* A waker that wakes all of them each second is said once. */
static void add_herd(json_t *storms, json_t *herd)
{
	int at = herd ? find_herd(storms, herd) : -1;

	if (at >= 0) {
		json_t *before = json_incref(json_array_get(storms, (size_t)at));
		json_int_t times = figure(before, "times") + 1;

		json_array_remove(storms, (size_t)at);
		if (figure(before, "threads") >= figure(herd, "threads")) {
			json_decref(herd);
			herd = before;
		} else {
			json_decref(before);
		}
		json_object_set_new(herd, "times", json_integer(times));
	}
	if (herd)
		say_herd(herd);
	add_storm(storms, herd);
}

static void add_herds(struct lock_waits *locks, json_t *storms)
{
	size_t n;

	qsort(locks->records, locks->n, sizeof(*locks->records), by_waker);
	for (size_t i = 0; i < locks->n; i += n) {
		n = run_length(&locks->records[i], locks->n - i);
		add_herd(storms, json_of_herd(&locks->records[i], n));
	}
}

/* ---- the report ---- */

/* A thread without a name as a waker may have one as a waiter. */
static void name_wakers(struct lock_waits *locks)
{
	struct part *names = NULL, *part;

	for (size_t i = 0; i < locks->n; i++) {
		const struct lock_record *r = &locks->records[i];

		if (r->thread_named &&
		    !part_of(&names, (uint64_t)r->of.host_pid << 32 | r->host_tid, r->thread))
			locks->failed = true;
	}
	for (size_t i = 0; i < locks->n; i++) {
		struct lock_record *r = &locks->records[i];
		uint64_t key = (uint64_t)r->of.host_pid << 32 | r->waker_host_tid;

		HASH_FIND(hh, names, &key, sizeof(key), part);
		if (part && !r->waker_named)
			r->waker = part->text;
	}
	free_parts(&names);
}

static void add_lock(json_t *list, json_t *lock)
{
	double ms = json_number_value(json_object_get(lock, "ms"));
	size_t from = 0, to = json_array_size(list);

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (json_number_value(json_object_get(json_array_get(list, middle), "ms")) >= ms)
			from = middle + 1;
		else
			to = middle;
	}
	json_array_insert_new(list, from, lock);
	json_array_remove(list, LOCKS_MAX);
}

json_t *locks_report(struct lock_waits *locks)
{
	json_t *list = json_array(), *storms = json_array(), *lock;
	struct lock_record *r = locks->records;
	size_t n;

	name_wakers(locks);
	if (locks->n)
		qsort(r, locks->n, sizeof(*r), by_group);
	for (size_t i = 0; i < locks->n && !r[i].idle; i += n) {
		n = 1;
		while (i + n < locks->n && !r[i + n].idle &&
		       !compare_groups(&r[i].of, &r[i + n].of))
			n++;
		lock = json_of_lock(&r[i], n);
		locks->failed |= !lock;
		if (!lock)
			continue;
		add_storm(storms, convoy_of(lock));
		add_lock(list, lock);
	}
	if (locks->n)
		add_herds(locks, storms);
	if (locks->failed) {
		json_decref(list);
		json_decref(storms);
		return NULL;
	}
	return json_pack("{s:o, s:o, s:f}", "locks", list, "storms", storms, "left_out",
			 locks->left_out);
}
