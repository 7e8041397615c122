/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of a wait for the GIL: counted, added to the sums per thread and holder, and reported as
 * a row when long enough.
 */
#ifndef UNDERSPAN_GIL_WAIT_REPORT_BPF_H
#define UNDERSPAN_GIL_WAIT_REPORT_BPF_H

#include "gil_wait/events.bpf.h"
#include "gil_wait/stacks.bpf.h"
#include "sched/thread.bpf.h"

/* Double buffer: programs add to the active map while user space empties the other map. */
volatile __u32 gil_active_profile = 0;
struct gil_profile_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct gil_profile_key);
	__type(value, struct gil_profile);
};
struct gil_profile_map gil_profile_0 SEC(".maps"), gil_profile_1 SEC(".maps");

static const struct gil_profile empty_gil_profile; /* too big for the stack */

volatile __u64 gil_wait_min_ns = 0; /* user space may change the value at any time */

static __always_inline void gil_profile_add(struct task_struct *task, struct gil_wait *w, __u64 ns)
{
	struct gil_profile_key key = { .host_tid = BPF_CORE_READ(task, pid),
				       .holder_tid = w->holders[0].tid };
	void *map = gil_active_profile & 1 ? (void *)&gil_profile_1 : (void *)&gil_profile_0;
	struct gil_profile *sum = bpf_map_lookup_elem(map, &key);

	if (!sum) { /* only the current thread adds to its own sums */
		if (bpf_map_update_elem(map, &key, &empty_gil_profile, BPF_ANY))
			return gil_lost();
		sum = bpf_map_lookup_elem(map, &key);
		if (!sum)
			return;
		header_set_task(&sum->header, task);
		sum->holder_host_tid = w->holders[0].host_tid;
	}
	sum->waits++;
	sum->wait_ns += ns;
	sum->runq_ns += w->runq_ns;
	sum->forced_ns += w->forced_ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
}

static __always_inline void gil_fill(struct gil_wait_event *event, struct task_struct *task,
				     struct gil_wait *w, __u8 method)
{
	header_set_task(&event->header, task);
	event->header.start_ns = w->start_ns;
	event->header.end_ns = w->end_ns;
	event->runq_ns = w->runq_ns;
	event->forced_ns = w->forced_ns;
	__builtin_memcpy(event->holders, w->holders, sizeof(event->holders));
	event->n_holders = w->n_holders;
	event->dropper_tid = w->dropper.tid;
	event->dropper_host_tid = w->dropper.host_tid;
	event->dropper_ident = w->dropper.ident;
	event->sleeps = w->sleeps;
	event->method = method;
}

static __always_inline void gil_report_with_stacks(struct task_struct *task, struct gil_wait *w,
						   __u8 method)
{
	__u32 zero = 0;
	struct gil_wait_with_stacks *row = bpf_map_lookup_elem(&gil_row, &zero);

	if (!row) {
		gil_stat(STAT_LOST_STATE, 1);
		return;
	}
	row->event = (struct gil_wait_event){};
	gil_fill(&row->event, task, w, method);
	gil_send_row(w->stack, w->holder_stack);
}

/* Counts the stacks missing from a row that is long enough for stacks. */
static __always_inline void gil_count_missing(struct gil_wait *w, __u64 ns, __u8 method)
{
	if (method != GIL_METHOD_SCHED || ns < gil_stack_min_ns)
		return;
	if (!w->stack)
		gil_stack_missing(w->missed);
	if (!w->holder_stack)
		gil_stack_missing(w->holder_missed);
}

/* Reports the open wait and closes the record. */
static __always_inline void gil_report(struct task_struct *task, struct gil_wait *w, __u8 method)
{
	struct gil_wait_event *event;
	__u64 ns;

	if (!w->end_ns) { /* no wake-up and no switch in was seen */
		gil_lost();
		goto out;
	}
	gil_stat(STAT_SEEN, 1);
	ns = w->end_ns - w->start_ns;
	gil_profile_add(task, w, ns);
	if (ns < gil_wait_min_ns) {
		gil_stat(STAT_FILTERED, 1);
		goto out;
	}
	gil_count_missing(w, ns, method);
	if (w->stack || w->holder_stack) {
		gil_report_with_stacks(task, w, method);
		goto out;
	}
	event = event_reserve_in(&gil_wait_events, &gil_wait_stats, sizeof(*event));
	if (!event)
		goto out;
	gil_fill(event, task, w, method);
	event_submit_in(&gil_wait_events, &gil_wait_stats, &gil_wait_sampling, event);
out:
	gil_clear_stacks(w);
	w->start_ns = 0;
}

static __noinline void gil_wait_report(struct task_struct *task, struct gil_wait *w, __u8 method)
{
	gil_report(task, w, method);
}

/*
 * Reports the wait of the current thread. A global function: the verifier would explore each
 * inlined copy, which took 19 MB more for the program of a context switch.
 */
__noinline int gil_report_current(void)
{
	struct task_struct *task = current_task();
	struct thread *t = thread_find(task);

	if (t)
		gil_report(task, &t->gil, GIL_METHOD_SCHED);
	return 0;
}

/* `t` is the current thread. */
static __always_inline void gil_wait_close(struct thread *t)
{
	if (t->gil.start_ns)
		gil_report_current();
}

#endif
