// SPDX-License-Identifier: Apache-2.0
/* Retries after growing delays. See retry_queue.h. */
#include "base/retry_queue.h"

#include <stdlib.h>

#include "base/util.h"

void *retry_item_new(struct retry_queue *queue, size_t size)
{
	void *item = queue->n < queue->max ? calloc(1, size) : NULL;

	queue->n += item != NULL;
	return item;
}

void retry_item_free(struct retry_queue *queue, struct retry_item *item)
{
	queue->n--;
	free(item);
}

bool retry_item_wait(struct retry_queue *queue, struct retry_item *item, size_t step,
		     uint64_t now_ns)
{
	if (step >= RETRY_STEPS_MAX || !queue->delays_ms[step])
		return false;
	item->step = step;
	item->due_ns = now_ns + queue->delays_ms[step] * NSEC_PER_MSEC;
	item->next = NULL;
	if (!queue->steps[step].first)
		queue->steps[step].last = &queue->steps[step].first;
	*queue->steps[step].last = item;
	queue->steps[step].last = &item->next;
	return true;
}

static struct retry_item *take_due(struct retry_queue *queue, size_t step, uint64_t now_ns)
{
	struct retry_item *item = queue->steps[step].first;

	if (!item || item->due_ns > now_ns)
		return NULL;
	queue->steps[step].first = item->next;
	return item;
}

void retry_queue_tick(struct retry_queue *queue, uint64_t now_ns)
{
	for (size_t step = 0; step < RETRY_STEPS_MAX; step++) {
		struct retry_item *item;

		while ((item = take_due(queue, step, now_ns)))
			queue->run(item, now_ns);
	}
}

uint64_t retry_queue_due_in(const struct retry_queue *queue, uint64_t now_ns, uint64_t limit_ns)
{
	uint64_t due_ns = now_ns + limit_ns;

	for (size_t step = 0; step < RETRY_STEPS_MAX; step++) {
		const struct retry_item *first = queue->steps[step].first;

		if (first && first->due_ns < due_ns)
			due_ns = first->due_ns;
	}
	return due_ns > now_ns ? due_ns - now_ns : 0;
}

void retry_queue_clear(struct retry_queue *queue)
{
	for (size_t step = 0; step < RETRY_STEPS_MAX; step++) {
		struct retry_item *item;

		while ((item = take_due(queue, step, UINT64_MAX)))
			retry_item_free(queue, item);
	}
}
