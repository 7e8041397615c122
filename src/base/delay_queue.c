// SPDX-License-Identifier: Apache-2.0
/* FIFO queues of equal delays. See delay_queue.h. */
#include "base/delay_queue.h"

#include "base/util.h"

void delay_queue_push(struct delay_queue *queue, struct delayed *thing, uint64_t now_ns)
{
	thing->due_ns = now_ns + queue->delay_ms * NSEC_PER_MSEC;
	thing->next = NULL;
	if (!queue->first)
		queue->last = &queue->first;
	*queue->last = thing;
	queue->last = &thing->next;
}

struct delayed *delay_queue_pop(struct delay_queue *queue, uint64_t now_ns)
{
	struct delayed *thing = queue->first;

	if (!thing || thing->due_ns > now_ns)
		return NULL;
	queue->first = thing->next;
	return thing;
}

uint64_t delay_queues_due_in(const struct delay_queue *queues, size_t n, uint64_t now_ns,
			     uint64_t limit_ns)
{
	uint64_t due_ns = now_ns + limit_ns;

	for (size_t i = 0; i < n; i++) {
		if (queues[i].first && queues[i].first->due_ns < due_ns)
			due_ns = queues[i].first->due_ns;
	}
	return due_ns > now_ns ? due_ns - now_ns : 0;
}
