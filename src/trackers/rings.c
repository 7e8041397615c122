// SPDX-License-Identifier: Apache-2.0
/* Ring buffers are read in turn. See trackers.h. */
#include "trackers/trackers.h"

#include "base/clock.h"
#include "events/process.h"
#include "process/processes.h"

enum { RECORDS_AT_ONCE = 256 };

/* An error makes ring_buffer__consume() stop after this record. */
static int count_record(struct tracker_set *set)
{
	return --set->budget ? 0 : -EAGAIN;
}

static int on_process_event(void *context, void *data, size_t size)
{
	struct tracker_set *set = context;
	uint64_t begin = clock_thread_cpu_ns();

	set->process_events++;
	if (size == sizeof(struct process_event))
		processes_handle(data);
	set->process_cpu_ns += clock_thread_cpu_ns() - begin;
	return count_record(set);
}

void running_tracker_take(struct running_tracker *running, const void *record, size_t size)
{
	const struct tracker *tracker = running->tracker;

	/* sizes in a ring buffer are exact: a record of a different size is of a different build */
	if (size < tracker->event_size || size - tracker->event_size > tracker->extra_max)
		running->bad_events++;
	else
		running->set->on_event(running->set->on_event_context, running, record, size);
}

static int on_tracker_event(void *context, void *data, size_t size)
{
	struct running_tracker *running = context;

	running_tracker_take(running, data, size);
	return count_record(running->set);
}

static int add_ring(struct tracker_set *set, int fd, ring_buffer_sample_fn fn, void *context)
{
	struct ring_buffer *ring = ring_buffer__new(fd, fn, context, NULL);

	if (!ring)
		return -errno;
	set->rings[set->n_rings++] = ring;
	return 0;
}

int rings_add_process(struct tracker_set *set, int fd)
{
	return add_ring(set, fd, on_process_event, set);
}

int rings_add_tracker(struct running_tracker *running, int fd)
{
	return add_ring(running->set, fd, on_tracker_event, running);
}

void tracker_set_consume(struct tracker_set *set, uint64_t until_ns)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < set->n_rings; i++) {
			set->budget = RECORDS_AT_ONCE;
			ring_buffer__consume(set->rings[i]);
			more |= set->budget == 0;
		}
		more = more && clock_monotonic_ns() < until_ns;
	}
}
