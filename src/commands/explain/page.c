// SPDX-License-Identifier: Apache-2.0
/* Events of a page of `underspan explain`. See page.h. */
#include "commands/explain/page.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "commands/report.h"
#include "html/page.h"

enum {
	EVENTS_BYTES = 1000000, /* in the page */
	NUMBER_BYTES = 20,
};

static const char *const event_lists[] = { "waits", "gc", "throttle", "connections", "outbound" };

struct page_event {
	json_t *event;
	double us;
	size_t order; /* stable */
	bool kept;
};

struct page_events {
	struct page_event *items;
	size_t n;
};

static size_t events_of(const json_t *owners)
{
	const json_t *owner;
	size_t n = 0, i;

	json_array_foreach (owners, i, owner) {
		for (size_t k = 0; k < ARRAY_SIZE(event_lists); k++)
			n += json_array_size(json_object_get(owner, event_lists[k]));
	}
	return n;
}

static void collect(struct page_events *to, const json_t *owners)
{
	json_t *owner, *event;
	size_t i, k;

	json_array_foreach (owners, i, owner) {
		for (size_t list = 0; list < ARRAY_SIZE(event_lists); list++) {
			json_array_foreach (json_object_get(owner, event_lists[list]), k, event) {
				to->items[to->n] = (struct page_event){
					.event = event,
					.us = report_number(event, "end_us") -
					      report_number(event, "begin_us"),
					.order = to->n,
				};
				to->n++;
			}
		}
	}
}

static int longest_first(const void *a, const void *b)
{
	const struct page_event *x = a, *y = b;

	return (y->us > x->us) - (y->us < x->us) ?: (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b)
{
	const struct page_event *x = a, *y = b;

	return (x->order > y->order) - (x->order < y->order);
}

/* The lists of owners in the order of collect(), without what is not kept. */
static void leave_out(const struct page_events *events, size_t *at, json_t *owners)
{
	json_t *owner;
	size_t i;

	json_array_foreach (owners, i, owner) {
		json_int_t left = 0;
		double us = 0;

		for (size_t k = 0; k < ARRAY_SIZE(event_lists); k++) {
			json_t *list = json_object_get(owner, event_lists[k]), *kept = json_array();
			size_t n = json_array_size(list);

			for (; n; n--, (*at)++) {
				if (events->items[*at].kept) {
					json_array_append(kept, events->items[*at].event);
				} else {
					left++;
					us += events->items[*at].us;
				}
			}
			if (list)
				json_object_set(owner, event_lists[k], kept);
			json_decref(kept);
		}
		if (left)
			json_object_set_new(
				owner, "left_out",
				json_pack("{s:I, s:f}", "events", left, "ms", us / 1000));
	}
}

int explain_page_limit(json_t *requests, json_t *spans)
{
	size_t n = events_of(requests) + events_of(spans), bytes = 0, at = 0;
	struct page_events events = { .items = calloc(n + 1, sizeof(*events.items)) };

	if (!events.items)
		return -ENOMEM;
	collect(&events, requests);
	collect(&events, spans);
	qsort(events.items, n, sizeof(*events.items), longest_first);
	for (size_t i = 0; i < n; i++) {
		bytes += html_page_bytes(events.items[i].event);
		events.items[i].kept = bytes <= EVENTS_BYTES;
	}
	qsort(events.items, n, sizeof(*events.items), by_order);
	if (bytes > EVENTS_BYTES) {
		leave_out(&events, &at, requests);
		leave_out(&events, &at, spans);
	}
	free(events.items);
	return 0;
}
