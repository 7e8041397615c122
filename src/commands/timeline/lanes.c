// SPDX-License-Identifier: Apache-2.0
/* Lanes of tracks. See lanes.h. */
#include "commands/timeline/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times of rows are cut to microseconds, durations are not. */
enum { CUT_NS = 2000 };

struct lane {
	uint64_t ends_ns[LANE_DEPTH];
	size_t depth;
};

struct lanes {
	struct lane *items;
	size_t n, capacity;
};

bool lanes_same_track(const struct slice *a, const struct slice *b)
{
	return a->host_pid == b->host_pid && a->track == b->track && a->host_tid == b->host_tid;
}

static int by_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_track(const struct slice *x, const struct slice *y)
{
	int order = by_number(x->host_pid, y->host_pid);

	if (!order)
		order = by_number(x->track, y->track);
	return order ?: by_number(x->host_tid, y->host_tid);
}

static int by_begin(const struct slice *x, const struct slice *y)
{
	return by_number(x->begin_ns, y->begin_ns) ?: by_number(y->duration_ns, x->duration_ns);
}

static int before_lanes(const void *a, const void *b)
{
	return by_track(a, b) ?: by_begin(a, b);
}

static int after_lanes(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;
	int order = by_track(x, y);

	if (!order)
		order = by_number(x->lane, y->lane);
	return order ?: by_begin(x, y);
}

/* False: the slice overlaps. */
static bool enter(struct lane *lane, struct slice *s)
{
	uint64_t around_ns;

	while (lane->depth && lane->ends_ns[lane->depth - 1] <= s->begin_ns)
		lane->depth--;
	if (!lane->depth) {
		lane->ends_ns[lane->depth++] = s->end_ns;
		return true;
	}
	around_ns = lane->ends_ns[lane->depth - 1];
	if (s->track != TRACK_THREAD || lane->depth == LANE_DEPTH || s->end_ns > around_ns + CUT_NS)
		return false;
	if (s->end_ns > around_ns)
		s->end_ns = around_ns;
	lane->ends_ns[lane->depth++] = s->end_ns;
	return true;
}

static int find_lane(struct lanes *lanes, struct slice *s)
{
	if (s->instant)
		return 0; /* between the slices of the first lane */
	for (size_t i = 0; i < lanes->n; i++) {
		if (enter(&lanes->items[i], s)) {
			s->lane = (uint32_t)i;
			return 0;
		}
	}
	if (lanes->n == lanes->capacity) {
		size_t capacity = lanes->capacity ? 2 * lanes->capacity : 16;
		struct lane *grown = realloc(lanes->items, capacity * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		lanes->items = grown;
		lanes->capacity = capacity;
	}
	lanes->items[lanes->n] = (struct lane){ .depth = 0 };
	s->lane = (uint32_t)lanes->n;
	enter(&lanes->items[lanes->n++], s);
	return 0;
}

int lanes_assign(struct timeline *t)
{
	struct lanes lanes = { 0 };
	int err = 0;

	if (!t->n)
		return 0;
	qsort(t->slices, t->n, sizeof(*t->slices), before_lanes);
	for (size_t i = 0; i < t->n && !err; i++) {
		if (i && !lanes_same_track(&t->slices[i - 1], &t->slices[i]))
			lanes.n = 0;
		err = find_lane(&lanes, &t->slices[i]);
	}
	free(lanes.items);
	qsort(t->slices, t->n, sizeof(*t->slices), after_lanes);
	return err;
}

/* ---- names ---- */

const char *const timeline_track_names[] = {
	[TRACK_REQUESTS] = "requests",
	[TRACK_HANDOFFS] = "hand-offs",
	[TRACK_GIL_HOLDER] = "holder of the GIL, while others wait",
	[TRACK_THREAD] = "",
};

void timeline_process_name(const struct timeline *t, uint32_t host_pid, char *ret, size_t size)
{
	struct timeline_process *p;

	HASH_FIND(hh, t->processes, &host_pid, sizeof(host_pid), p);
	if (p && *p->service && strcmp(p->service, p->comm) != 0)
		snprintf(ret, size, "%s (%s)", p->service, p->comm);
	else
		snprintf(ret, size, "%s", p ? p->comm : "");
}

const char *timeline_thread_name(const struct timeline *t, uint32_t host_pid, uint32_t host_tid)
{
	uint32_t key[2] = { host_pid, host_tid };
	struct timeline_thread *thread;

	HASH_FIND(hh, t->threads, key, sizeof(key), thread);
	if (!thread)
		return "";
	if (*thread->name)
		return thread->name;
	return thread->main && !*thread->comm ? "MainThread" : thread->comm;
}
