// SPDX-License-Identifier: Apache-2.0
/* Perf events of event-loop threads. See loop_watch.h. */
#include "trackers/loop_watch.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "events/loop_stall.h"
#include "host/perf_event.h"

/* A watched thread; the index is its slot in loop_clocks. */
struct watched {
	uint64_t key; /* in the maps of threads; 0: free */
	uint32_t host_tid;
	bool seen; /* by the present look at the map */
	struct bpf_link *switches, *clock;
};

static struct loop_stall_bpf *skeleton;
static struct watched *watched;
static bool said_why;

void loop_watch_open(struct loop_stall_bpf *of)
{
	skeleton = of;
	said_why = false;
	watched = calloc(LOOP_THREADS_MAX, sizeof(*watched));
}

static void unwatch(uint32_t slot)
{
	struct watched *w = &watched[slot];

	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.loop_watched), &w->key);
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.loop_clocks), &slot);
	bpf_link__destroy(w->switches);
	bpf_link__destroy(w->clock);
	*w = (struct watched){ 0 };
}

void loop_watch_none(void)
{
	for (uint32_t slot = 0; watched && slot < LOOP_THREADS_MAX; slot++) {
		if (watched[slot].key)
			unwatch(slot);
	}
}

void loop_watch_close(void)
{
	loop_watch_none();
	free(watched);
	watched = NULL;
}

static void say_why(const struct tracker_output *output, int err)
{
	static char reason[256];

	if (said_why || err == ESRCH)
		return;
	said_why = true;
	snprintf(reason, sizeof(reason),
		 "perf events of event-loop threads cannot be opened (%s): the rows' stalls are "
		 "neither split by cause nor have Python stacks",
		 strerror(err));
	log_warn("loop_stall: %s", reason);
	output->health(output, &(struct tracker_health){
				       .live = true, .method = "syscalls", .reason = reason });
}

static void watch(const struct tracker_output *output, uint64_t key, uint32_t host_tid,
		  uint64_t period_ns)
{
	struct loop_watch entry = { .slot = 0 };
	struct watched *w;
	int fd;

	while (entry.slot < LOOP_THREADS_MAX && watched[entry.slot].key)
		entry.slot++;
	if (entry.slot == LOOP_THREADS_MAX)
		return;
	w = &watched[entry.slot];
	w->switches = perf_event_attach((int)host_tid, -1, PERF_COUNT_SW_CONTEXT_SWITCHES, 1,
					skeleton->progs.loop_switched_out, &fd);
	if (!w->switches) {
		say_why(output, errno);
		return;
	}
	w->clock = perf_event_attach((int)host_tid, -1, PERF_COUNT_SW_CPU_CLOCK, period_ns,
				     skeleton->progs.loop_clock, NULL);
	if (!w->clock)
		say_why(output, errno);
	*w = (struct watched){ key, host_tid, true, w->switches, w->clock };
	entry.since_ns = clock_monotonic_ns();
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.loop_clocks), &entry.slot, &fd,
				BPF_ANY) ||
	    bpf_map_update_elem(bpf_map__fd(skeleton->maps.loop_watched), &key, &entry, BPF_ANY)) {
		say_why(output, errno);
		unwatch(entry.slot);
	}
}

static struct watched *find(uint64_t key)
{
	for (uint32_t slot = 0; slot < LOOP_THREADS_MAX; slot++) {
		if (watched[slot].key == key)
			return &watched[slot];
	}
	return NULL;
}

static void look_at(const struct tracker_output *output, uint64_t key,
		    const struct loop_thread *loop, uint64_t period_ns)
{
	struct watched *w = find(key);

	if (w && w->host_tid != loop->host_tid) { /* the address of an ended thread */
		unwatch((uint32_t)(w - watched));
		w = NULL;
	}
	if (w)
		w->seen = true;
	else if (loop->kind)
		watch(output, key, loop->host_tid, period_ns);
}

void loop_watch_tick(const struct tracker_output *output, uint64_t period_ns)
{
	int threads = bpf_map__fd(skeleton->maps.loop_threads);
	struct loop_thread loop;
	uint64_t key, *from = NULL;

	if (!watched || output->last)
		return;
	for (uint32_t slot = 0; slot < LOOP_THREADS_MAX; slot++)
		watched[slot].seen = false;
	for (int n = 0; n < 2 * LOOP_THREADS_MAX && !bpf_map_get_next_key(threads, from, &key);
	     n++, from = &key) {
		if (!bpf_map_lookup_elem(threads, &key, &loop))
			look_at(output, key, &loop, period_ns);
	}
	for (uint32_t slot = 0; slot < LOOP_THREADS_MAX; slot++) {
		if (watched[slot].key && !watched[slot].seen)
			unwatch(slot);
	}
}
