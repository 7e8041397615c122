/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things to be looked at again after a while. One first-in first-out queue for each delay: what
 * comes later is due later, so no sorting, and the next one due is known at once.
 */
#ifndef UNDERSPAN_DELAY_QUEUE_H
#define UNDERSPAN_DELAY_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* The first member of what waits. */
struct delayed {
	uint64_t due_ns; /* CLOCK_MONOTONIC, as all times here */
	struct delayed *next;
};

struct delay_queue {
	uint32_t delay_ms; /* the rest is zero at first */
	struct delayed *first, **last;
};

/* The queue has `thing`, the caller's, until it is popped. */
void delay_queue_push(struct delay_queue *queue, struct delayed *thing, uint64_t now_ns);

/* What was pushed first, if it is due; NULL otherwise. UINT64_MAX as `now_ns`: due or not. */
struct delayed *delay_queue_pop(struct delay_queue *queue, uint64_t now_ns);

/* How long until the first of all `n` queues is due, `limit_ns` at most. */
uint64_t delay_queues_due_in(const struct delay_queue *queues, size_t n, uint64_t now_ns,
			     uint64_t limit_ns);

#endif
