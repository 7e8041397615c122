/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the end of a stall to the row. */
#ifndef UNDERSPAN_LOOP_STALL_REPORT_BPF_H
#define UNDERSPAN_LOOP_STALL_REPORT_BPF_H

#include "loop_stall/split.bpf.h"

struct loop_row {
	__u64 users; /* see loop_looks */
	struct loop_stall_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
};

/* Scratch space: for the switch out, with interrupts off, and for system calls. */
enum loop_row_of { LOOP_ROW_OF_SWITCH, LOOP_ROW_OF_CALL, LOOP_ROWS };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOOP_ROWS);
	__type(key, __u32);
	__type(value, struct loop_row);
} loop_rows SEC(".maps");

static __always_inline void loop_output(struct loop_thread *loop, struct loop_row *row)
{
	__u64 key = loop_stack_key(loop->send_stack - 1);
	struct python_stack *stack;
	__u32 n;

	__builtin_memcpy(&row->event, &loop->event, sizeof(row->event));
	stack = loop->send_stack ? bpf_map_lookup_elem(&loop_stacks, &key) : NULL;
	if (stack)
		python_copy_stack(stack, row->frames, &row->event.py_stack);
	else
		stat_add(STAT_STACK_LATE, 1);
	n = *(volatile __u16 *)&row->event.py_stack.n;
	if (n > PYTHON_STACK_MAX)
		n = PYTHON_STACK_MAX;
	event_output(&row->event, sizeof(row->event) + n * sizeof(row->frames[0]));
}

/* Sends the current thread's pending stall. Global: see python/threads.bpf.h. */
__noinline int loop_send(__u32 row_of)
{
	struct loop_row *row = bpf_map_lookup_elem(&loop_rows, &row_of);
	struct loop_thread *loop = loop_find();

	if (!row || !loop || !loop->pending)
		return 0;
	loop->pending = 0;
	stat_add(STAT_SEEN, 1);
	__sync_fetch_and_add(&row->users, 1);
	if (*(volatile __u64 *)&row->users == 1)
		loop_output(loop, row);
	else
		stat_add(STAT_LOST_STATE, 1);
	__sync_fetch_and_add(&row->users, -1);
	return 0;
}

static __always_inline void loop_send_waiting(struct loop_thread *loop, __u32 waiting, __u32 row_of)
{
	loop->event.waiting = waiting;
	loop->event.waiting_known = 1;
	loop_send(row_of);
}

/* The current thread's time on a CPU; false: the perf event cannot be read. */
static __always_inline bool loop_on_cpu_ns(const struct loop_watch *watch, __u64 *ret)
{
	struct bpf_perf_event_value value = {};

	if (bpf_perf_event_read_value(&loop_clocks, watch->slot, &value, sizeof(value)))
		return false;
	*ret = value.enabled;
	return true;
}

/*
 * The times asleep, by part. Without context switches all time off the CPU is LOOP_OTHER, to the
 * scheduler's tick.
 */
static __always_inline void loop_fill_split(struct task_struct *task, struct loop_thread *loop,
					    const struct loop_watch *watch, __u64 now)
{
	struct loop_stall_event *event = &loop->event;
	__u64 delay = run_delay(task), on = 0, ns = now - loop->busy_ns;

	event->runq_ns = delay - loop->run_delay_ns;
	event->split = watch && watch->since_ns <= loop->busy_ns;
	if (event->split && loop->off_ns) {
		if (loop_on_cpu_ns(watch, &on))
			loop_slept(loop, now, on, delay);
		else
			event->split = 0;
	}
	if (event->split) {
		__builtin_memcpy(event->part_ns, loop->part_ns, sizeof(event->part_ns));
		event->gil_known = loop->gil != 0;
		return;
	}
	on = BPF_CORE_READ(task, se.sum_exec_runtime) - loop->exec_ns + event->runq_ns;
	event->part_ns[LOOP_OTHER] = ns > on ? ns - on : 0;
}

/* Of the sleeps if the thread slept for most of the stall, otherwise of a CPU. */
static __always_inline void loop_choose_stack(struct loop_thread *loop, __u64 now)
{
	struct loop_stall_event *event = &loop->event;
	__u64 busy = now - loop->busy_ns - event->runq_ns, asleep = 0;
	bool sleep;

	for (int i = 0; i < LOOP_PARTS; i++)
		asleep += loop->part_ns[i];
	sleep = loop->longest_stack && (asleep >= busy / 2 || !loop->cpu_stack);
	if (sleep) {
		loop->send_stack = 1 + loop->longest_slot;
		event->stack_at_ns = loop->longest_at_ns - loop->busy_ns;
	} else if (loop->cpu_stack) {
		loop->send_stack = 1 + LOOP_STACK_CPU;
		event->stack_at_ns = loop->sampled_at_ns;
	}
}

/* Was the descriptor made after the poll that returned? Then an earlier loop had the number. */
static __always_inline bool loop_is_new(const struct loop_thread *loop)
{
	__u64 key = loop_fd_key(loop->epoll_fd), *made = bpf_map_lookup_elem(&loop_made, &key);

	return made && *made > loop->busy_ns;
}

/* The loop polls after a stall. Global: see python/threads.bpf.h. */
__noinline int loop_stalled(__u32 sleeps)
{
	struct task_struct *task = current_task();
	struct loop_thread *loop = loop_find();
	const struct loop_watch *watch = loop_watch();
	__u64 now = bpf_ktime_get_ns();

	if (!loop)
		return 0;
	if (loop_is_new(loop)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		return 0;
	}
	__builtin_memset(&loop->event, 0, sizeof(loop->event));
	loop->send_stack = 0;
	header_set_current(&loop->event.header);
	loop->event.header.start_ns = loop->busy_ns;
	loop->event.header.end_ns = now;
	loop->event.kind = loop->kind;
	loop_fill_split(task, loop, watch, now);
	loop_choose_stack(loop, now);
	loop->pending = 1;
	/* ready descriptors are known at the end of the poll; an idle poll may take for ever */
	if (sleeps && !watch)
		loop_send(LOOP_ROW_OF_CALL);
	return 0;
}

#endif
