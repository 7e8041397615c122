/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items that are tried again after growing delays. Each step has one delay and thus a FIFO queue:
 * no sorting, and the next due item is a head.
 */
#ifndef UNDERSPAN_BASE_RETRY_QUEUE_H
#define UNDERSPAN_BASE_RETRY_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RETRY_STEPS_MAX = 10 };

/* First member of an item. */
struct retry_item {
	uint64_t due_ns; /* CLOCK_MONOTONIC, like all times here */
	size_t step;
	struct retry_item *next;
};

struct retry_queue {
	uint32_t delays_ms[RETRY_STEPS_MAX]; /* up to the first 0 */
	size_t max;			     /* items */
	/* A due item, off the queue: calls retry_item_wait() or retry_item_free(), at once or
	 * later. */
	void (*run)(struct retry_item *item, uint64_t now_ns);

	/* initially zero */
	size_t n; /* items, waiting or not */
	struct {
		struct retry_item *first, **last;
	} steps[RETRY_STEPS_MAX];
};

/* An item of `size` bytes, zeroed; NULL: `max` items exist, or out of memory. */
void *retry_item_new(struct retry_queue *queue, size_t size);
void retry_item_free(struct retry_queue *queue, struct retry_item *item);

/* Puts an item into the queue of `step`. False (not queued): there is no such step. */
bool retry_item_wait(struct retry_queue *queue, struct retry_item *item, size_t step,
		     uint64_t now_ns);

/* Runs due items; now_ns UINT64_MAX: all. */
void retry_queue_tick(struct retry_queue *queue, uint64_t now_ns);

/* Time until the next item is due, at most `limit_ns`. */
uint64_t retry_queue_due_in(const struct retry_queue *queue, uint64_t now_ns, uint64_t limit_ns);

/* Frees all items that wait. */
void retry_queue_clear(struct retry_queue *queue);

#endif
