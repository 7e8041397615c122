// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The map of tracked processes, kept correct in the kernel: a child is tracked from its first
 * instruction, and an exited process is removed before its id can be reused. User space adds
 * processes with an interpreter (src/process/processes.c) and runtime addresses
 * (src/process/runtime_addresses.c). A forked child inherits both, because its memory is a copy.
 */
#include "lib/event.bpf.h"
#include "lib/ports.bpf.h"
#include "lib/task.bpf.h"
#include "python/gc_clock.bpf.h"
#include "python/processes.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * Limits wake-ups of the reader per period. Events beyond the limit wait for the next wake-up, or
 * for the reader's poll every 100 ms.
 */
static const __u64 WAKE_PERIOD_NS = 50000000;
enum { WAKES_MAX = 10, THREAD_WAKES_MAX = 4 };
struct wakes {
	__u64 begin_ns;
	__u32 n;
};
static struct wakes wakes, thread_wakes;

/* The number of earlier calls in the present period. A race of two CPUs miscounts by 1. */
static __always_inline __u32 period_count(struct wakes *w, __u64 period_ns, __u64 now_ns)
{
	if (now_ns - w->begin_ns > period_ns) {
		w->begin_ns = now_ns;
		w->n = 0;
	}
	return w->n++;
}

static __always_inline __u64 wake_flags(struct wakes *w, __u32 max, __u64 now_ns)
{
	return period_count(w, WAKE_PERIOD_NS, now_ns) < max ? BPF_RB_FORCE_WAKEUP
							     : BPF_RB_NO_WAKEUP;
}

/* All changes of `processes` go through these two, which keep `process_slots`. */

static __always_inline void slot_add(__u32 tgid, __s64 n)
{
	__u32 slot = tgid & (PROCESS_SLOTS - 1);
	__u64 *known = bpf_map_lookup_elem(&process_slots, &slot);

	if (known)
		__sync_fetch_and_add(known, n);
}

/* Returns an error when the map is full. */
static __always_inline long process_put(__u32 tgid, const struct process_info *info)
{
	if (!bpf_map_update_elem(&processes, &tgid, info, BPF_NOEXIST)) {
		slot_add(tgid, 1);
		return 0;
	}
	return bpf_map_update_elem(&processes, &tgid, info, BPF_EXIST);
}

/* Returns an error when the process is not in the map. */
static __always_inline long process_delete(__u32 tgid)
{
	long err = bpf_map_delete_elem(&processes, &tgid);

	if (!err)
		slot_add(tgid, -1);
	return err;
}

static __always_inline void report_process(__u32 kind, __u32 host_pid, __u32 parent)
{
	struct process_event *event;

	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	event->kind = kind;
	event->host_pid = host_pid;
	event->parent_host_pid = parent;
	/* wake up early: an interpreter should be probed before it does much */
	bpf_ringbuf_submit(event, wake_flags(&wakes, WAKES_MAX, bpf_ktime_get_ns()));
}

/*
 * A storm of short programs. Inspecting a program costs user space about 100 us, and beyond this
 * rate most programs end before the inspection. Programs beyond the rate are kept here by host pid,
 * with the time of their exec, until their exit; user space inspects survivors only
 * (src/process/young.c). So a storm of short programs costs user space nothing, at any rate.
 */
enum { PROGRAMS = 200, MAX_YOUNG = 8192 };
static const __u64 PROGRAMS_PERIOD_NS = 1000000000;
static struct wakes programs;
__u64 young_programs; /* since the start; 0 spares hosts without storms the look-up */
const volatile bool only_chosen;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_YOUNG);
	__type(key, __u32);
	__type(value, __u64);
} young SEC(".maps");

static __always_inline bool program_is_reported(__u64 now_ns)
{
	return period_count(&programs, PROGRAMS_PERIOD_NS, now_ns) < PROGRAMS;
}

static __always_inline void young_delete(__u32 host_pid)
{
	if (young_programs)
		bpf_map_delete_elem(&young, &host_pid);
}

static __always_inline void young_add(__u32 host_pid, __u64 now_ns)
{
	stat_add(STAT_SEEN, 1);
	young_programs++; /* not atomic: user space only checks for growth */
	/* after a loss user space inspects all processes */
	stat_add(bpf_map_update_elem(&young, &host_pid, &now_ns, BPF_ANY) ? STAT_LOST_RING
									  : STAT_FILTERED,
		 1);
}

/*
 * A process that starts threads continuously must not wake the reader each time: at most once per
 * interval. The reader then stays awake while threads remain to be inspected.
 */
static const __u64 THREAD_WAKE_INTERVAL_NS = 5000000;
static __u64 thread_wake_ns;

static __always_inline void report_thread(struct task_struct *thread)
{
	struct process_event *event;
	__u64 flags = BPF_RB_NO_WAKEUP;

	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	event->kind = PROCESS_THREAD;
	event->host_pid = thread->tgid;
	event->host_tid = thread->pid;
	event->pid = task_ns_id(BPF_CORE_READ(thread, group_leader));
	event->tid = task_ns_id(thread);
	event->ident = task_ident(thread);
	event->time_ns = bpf_ktime_get_ns();
	if (event->time_ns - thread_wake_ns > THREAD_WAKE_INTERVAL_NS) {
		thread_wake_ns = event->time_ns;
		flags = wake_flags(&thread_wakes, THREAD_WAKES_MAX, event->time_ns);
	}
	bpf_ringbuf_submit(event, flags);
}

/* In the parent, before the child runs for the first time. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, tgid = child->tgid;
	struct process_info *known, info;
	struct python_process *python;

	known = process_may_be_known(parent_tgid) ? bpf_map_lookup_elem(&processes, &parent_tgid)
						  : NULL;
	if (!known)
		return 0;
	if (child->pid != child->tgid) {
		/* user space reads the thread's name from the interpreter */
		if ((known->flags & (PROCESS_PYTHON | PROCESS_REFUSED)) == PROCESS_PYTHON)
			report_thread(child);
		return 0;
	}
	info = *known;
	if (process_put(tgid, &info)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
	}
	python = bpf_map_lookup_elem(&python_processes, &parent_tgid);
	if (python)
		bpf_map_update_elem(&python_processes, &tgid, python, BPF_ANY);
	if (info.flags == PROCESS_OWN)
		return 0;
	report_process(PROCESS_FORK, tgid, parent_tgid);
	return 0;
}

/* In the thread that called exec(), the only thread left. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct process_info *known = bpf_map_lookup_elem(&processes, &tgid);
	bool chosen = known && known->flags & PROCESS_CHOSEN;
	__u64 now_ns = bpf_ktime_get_ns();

	if (chosen)
		known->flags &= ~PROCESS_REFUSED;
	else if (known)
		process_delete(tgid);
	bpf_map_delete_elem(&python_processes, &tgid);
	if (only_chosen && !chosen)
		return 0;
	if (chosen || program_is_reported(now_ns)) {
		young_delete(tgid);
		report_process(PROCESS_EXEC, tgid, 0);
		return 0;
	}
	if (known) /* the former program has ended */
		report_process(PROCESS_EXIT, tgid, 0);
	young_add(tgid, now_ns);
	return 0;
}

/* In the exiting thread. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	/* runs for each thread; do_exit() has already decremented `live` */
	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	bpf_map_delete_elem(&python_processes, &tgid);
	young_delete(tgid);
	if (process_delete(tgid))
		return 0;
	report_process(PROCESS_EXIT, tgid, 0);
	return 0;
}
