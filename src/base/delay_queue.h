/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deferred items: a FIFO queue per delay. Within a queue, items are due in order of arrival: no
 * sorting, and the next due item is the head.
 */
#ifndef UNDERSPAN_BASE_DELAY_QUEUE_H
#define UNDERSPAN_BASE_DELAY_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* Header of a deferred item: must be its first member. */
struct delayed {
	uint64_t due_ns; /* CLOCK_MONOTONIC, like all times here */
	struct delayed *next;
};

struct delay_queue {
	uint32_t delay_ms; /* initially zero from here on */
	struct delayed *first, **last;
};

/* `thing` stays owned by the caller and must live until popped. */
void delay_queue_push(struct delay_queue *queue, struct delayed *thing, uint64_t now_ns);

/* The oldest item if due, otherwise NULL. now_ns UINT64_MAX: due or not. */
struct delayed *delay_queue_pop(struct delay_queue *queue, uint64_t now_ns);

/* Time until the next due item of `n` queues, at most `limit_ns`. */
uint64_t delay_queues_due_in(const struct delay_queue *queues, size_t n, uint64_t now_ns,
			     uint64_t limit_ns);

#endif
