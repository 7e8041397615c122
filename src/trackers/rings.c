// SPDX-License-Identifier: Apache-2.0
/* Ring buffers are read in turn. See trackers.h. */
#include "trackers/trackers.h"

#include "base/clock.h"
#include "events/process.h"
#include "process/processes.h"

enum { RECORDS_AT_ONCE = 256 };

static void on_process_event(void *context, const void *data, size_t size)
{
	struct tracker_set *set = context;
	uint64_t begin = clock_thread_cpu_ns();

	set->process_events++;
	if (size == sizeof(struct process_event))
		processes_handle(data);
	set->process_cpu_ns += clock_thread_cpu_ns() - begin;
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

static void on_tracker_event(void *context, const void *data, size_t size)
{
	running_tracker_take(context, data, size);
}

static int add_ring(struct tracker_set *set, int fd, ring_on_record on_record, void *context)
{
	struct tracker_ring *ring = &set->rings[set->n_rings];
	int err = ring_open(&ring->ring, fd);

	if (err)
		return err;
	ring->on_record = on_record;
	ring->context = context;
	set->n_rings++;
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
			struct tracker_ring *r = &set->rings[i];

			more |= ring_read(&r->ring, RECORDS_AT_ONCE, r->on_record, r->context) ==
				RECORDS_AT_ONCE;
		}
		more = more && clock_monotonic_ns() < until_ns;
	}
}
