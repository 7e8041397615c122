// SPDX-License-Identifier: Apache-2.0
/* Which rows a timeline holds. See limit.h. */
#include "commands/timeline/limit.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "commands/report.h"

static int by_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* ---- the slowest requests ---- */

static int slower_first(const void *a, const void *b)
{
	const struct slice *const *x = a, *const *y = b;

	return by_number((*y)->duration_ns, (*x)->duration_ns);
}

static int by_thread(const void *a, const void *b)
{
	const struct timeline_slow *x = a, *y = b;

	return by_number(x->host_tid, y->host_tid) ?: by_number(x->begin_ns, y->begin_ns);
}

/* Joins times of a thread that touch; returns the number left. */
static size_t join(struct timeline_slow *times, size_t n)
{
	size_t last = 0;

	for (size_t i = 1; i < n; i++) {
		if (times[i].host_tid == times[last].host_tid &&
		    times[i].begin_ns <= times[last].end_ns) {
			if (times[i].end_ns > times[last].end_ns)
				times[last].end_ns = times[i].end_ns;
		} else {
			times[++last] = times[i];
		}
	}
	return n ? last + 1 : 0;
}

size_t timeline_slow_times(const struct timeline *t, struct timeline_slow **ret)
{
	const struct slice **requests = calloc(t->n + 1, sizeof(*requests));
	struct timeline_slow *times = calloc(TIMELINE_SLOW_MAX, sizeof(*times));
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < t->n && requests; i++) {
		if (t->slices[i].track == TRACK_REQUESTS && t->slices[i].thread)
			requests[n++] = &t->slices[i];
	}
	if (requests)
		qsort(requests, n, sizeof(*requests), slower_first);
	for (size_t i = 0; i < n && i < TIMELINE_SLOW_MAX && times; i++)
		times[kept++] = (struct timeline_slow){ requests[i]->thread, requests[i]->begin_ns,
							requests[i]->end_ns };
	free(requests);
	*ret = times;
	if (kept)
		qsort(times, kept, sizeof(*times), by_thread);
	return join(times, kept);
}

/* ---- slices ---- */

/* The last time that began before the slice's end. */
static bool is_slow(const struct timeline_slow *times, size_t n, const struct slice *s)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct timeline_slow *at = &times[middle];

		if (at->host_tid < s->thread ||
		    (at->host_tid == s->thread && at->begin_ns < s->end_ns))
			low = middle + 1;
		else
			high = middle;
	}
	return low && times[low - 1].host_tid == s->thread && times[low - 1].end_ns > s->begin_ns;
}

struct ranked {
	uint64_t duration_ns;
	size_t slice;
	uint32_t scatter;
	bool idle, slow;
};

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->idle != y->idle)
		return x->idle ? 1 : -1;
	if (x->slow != y->slow)
		return x->slow ? -1 : 1;
	return by_number(y->duration_ns, x->duration_ns)
		       ?: by_number(x->scatter, y->scatter)
		       ?: by_number(x->slice, y->slice);
}

uint32_t timeline_scatter(const struct slice *s)
{
	/* 2^32 / golden ratio: multiples are spread evenly */
	return (uint32_t)(s->begin_ns / NSEC_PER_USEC * 2654435761U + s->thread);
}

static struct ranked ranked_of(const struct slice *s)
{
	if (s->instant)
		return (struct ranked){ .scatter = timeline_scatter(s) };
	return (struct ranked){ .duration_ns = s->duration_ns, .idle = s->idle };
}

/* The slices of a kind, those to be kept first; NULL: no memory. */
static struct ranked *rank(const struct timeline *t, uint8_t kind)
{
	struct ranked *ranked = calloc(t->n_of[kind], sizeof(*ranked));
	struct timeline_slow *times;
	size_t n_times = timeline_slow_times(t, &times), n = 0;

	for (size_t i = 0; i < t->n && ranked; i++) {
		const struct slice *s = &t->slices[i];

		if (s->kind != kind || s->track == TRACK_GIL_HOLDER)
			continue;
		ranked[n] = ranked_of(s);
		ranked[n].slice = i;
		ranked[n++].slow = is_slow(times, n_times, s);
	}
	free(times);
	if (ranked)
		qsort(ranked, n, sizeof(*ranked), by_rank);
	return ranked;
}

static void drop(struct timeline *t, uint8_t kind, size_t slice)
{
	struct slice *s = &t->slices[slice];

	t->left_out[kind].rows++;
	t->left_out[kind].ns += s->duration_ns;
	free(s->event);
	s->event = NULL;
}

void timeline_limit(struct timeline *t, uint8_t kind, size_t most)
{
	struct ranked *ranked;
	size_t kept = 0;

	if (t->err || t->n_of[kind] <= most)
		return;
	ranked = rank(t, kind);
	if (!ranked) {
		t->err = -ENOMEM;
		return;
	}
	for (size_t i = TIMELINE_ROWS_MAX; i < t->n_of[kind]; i++)
		drop(t, kind, ranked[i].slice);
	t->n_of[kind] = TIMELINE_ROWS_MAX;
	free(ranked);
	for (size_t i = 0; i < t->n; i++) {
		if (t->slices[i].event)
			t->slices[kept++] = t->slices[i];
	}
	t->n = kept;
}

uint64_t timeline_kind_ns(const struct timeline *t, uint8_t kind)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < t->n; i++)
		ns += t->slices[i].kind == kind ? t->slices[i].duration_ns : 0;
	return ns;
}

void timeline_add_notes(const struct timeline *t, const char *of, json_t *report)
{
	for (size_t i = 0; i < TIMELINE_KINDS; i++) {
		const struct timeline_left_out *out = &t->left_out[i];

		if (out->rows)
			report_add_note(
				report,
				"%s%s: only %zu of %llu row%s, those of the slowest requests "
				"and %s; left out: %llu row%s, %.3f s together",
				of, timeline_kinds[i].events, t->n_of[i],
				(unsigned long long)(t->n_of[i] + out->rows),
				plural(t->n_of[i] + out->rows), timeline_kinds[i].kept,
				(unsigned long long)out->rows, plural(out->rows),
				(double)out->ns / 1e9);
	}
	if (t->holdings_left_out)
		report_add_note(report,
				"%sholders of the GIL: %zu had no place: the track has the first",
				of, t->holdings_left_out);
}
