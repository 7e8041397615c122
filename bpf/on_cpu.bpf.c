// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which Python code computes: a clock of each CPU, which user space opens as a software event,
 * samples the thread that runs there. A row for each sample of a Python process's thread, with the
 * Python stack. Rates are low (19 a second), so that a CPU without Python pays for an interrupt
 * with two loads.
 */
#include "lib/compat.bpf.h"
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "events/on_cpu.h"
#include "python/threads.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct on_cpu_row {
	struct on_cpu_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
};

/* The clock's interrupt is not interrupted by another clock. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct on_cpu_row);
} on_cpu_rows SEC(".maps");

/* Walks the current thread's stack. Global: see python/threads.bpf.h. */
__noinline int on_cpu_walk(void)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!walk)
		return 0;
	walk->generation++;
	walk->ident = task_ident(task);
	walk->ns_tid = task_ns_id(task);
	walk->tstate = 0;
	walk->shown = 0;
	python_find_tstate(PYTHON_SLOT_SCHED);
	if (walk->native)
		return 0;
	python_take_stack(PYTHON_SLOT_SCHED);
	if (!walk->shown)
		stat_add(STAT_STACK_STATE, 1);
	return walk->shown != 0;
}

/* In an interrupt of the clock, on the thread that runs. */
SEC("perf_event")
int on_cpu_clock(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0, n = 0;
	struct python_walk *walk;
	struct on_cpu_row *row;

	if (!current_is_python())
		return 0;
	row = bpf_map_lookup_elem(&on_cpu_rows, &zero);
	walk = python_walk_of(PYTHON_SLOT_SCHED);
	if (!row || !walk)
		return 0;
	stat_add(STAT_SEEN, 1);
	__builtin_memset(&row->event, 0, sizeof(row->event));
	header_set_current(&row->event.header);
	row->event.header.start_ns = row->event.header.end_ns = bpf_ktime_get_ns();
	row->event.cpu = bpf_get_smp_processor_id();
	if (on_cpu_walk()) {
		python_copy_stack(&walk->stack, row->frames, &row->event.py_stack);
		n = *(volatile __u16 *)&row->event.py_stack.n;
		if (n > PYTHON_STACK_MAX)
			n = PYTHON_STACK_MAX;
	}
	event_output(&row->event, sizeof(row->event) + n * sizeof(row->frames[0]));
	return 0;
}
