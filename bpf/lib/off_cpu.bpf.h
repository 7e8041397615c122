/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Intervals in which a thread was off the CPU: why, for how long, how much of that it was
 * runnable, who woke it. The user stack is taken when the thread leaves, for that is the last
 * time that its memory is at hand; the kernel stack when it comes back, and only where it is
 * reported. Stacks travel with the event or the sum they belong to: no table of stacks that fills.
 */
#ifndef UNDERSPAN_OFF_CPU_BPF_H
#define UNDERSPAN_OFF_CPU_BPF_H

#include "thread.bpf.h"
#include "user_stack.bpf.h"

TRACKER_MAPS(off_cpu_);

/* Sums of the running interval in one of two maps, while user space empties the other. */
volatile __u32 off_cpu_profile_side = 0;
struct off_cpu_profile_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct off_cpu_profile_key);
	__type(value, struct off_cpu_profile);
};
struct off_cpu_profile_map off_cpu_profile_0 SEC(".maps"), off_cpu_profile_1 SEC(".maps");

/* Those whose own sum finds no room, by side and cause: details are lost then, time is not. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * OFF_CPU_CAUSE_MAX);
	__type(key, __u32);
	__type(value, struct off_cpu_sum);
} off_cpu_profile_rest SEC(".maps");

/* A sum is made here before it goes into the map: too big for the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct off_cpu_profile);
} off_cpu_scratch SEC(".maps");

const volatile bool off_cpu_runs = true;
volatile __u64 off_cpu_min_ns = 0; /* may change while it runs */
const volatile bool off_cpu_user_stacks = true;

static __always_inline void off_cpu_stat(__u32 stat, __u64 n)
{
	stat_add_in(&off_cpu_stats, stat, n);
}

/* One more that happened, and no row or no sum has it. */
static __always_inline void off_cpu_lost(void)
{
	off_cpu_stat(STAT_SEEN, 1);
	off_cpu_stat(STAT_LOST_STATE, 1);
}

/* ---- why ---- */

enum {
	S_TYPE = 0170000,
	S_SOCKET = 0140000,
	S_REGULAR = 0100000,
	S_BLOCK = 0060000,
	S_DIRECTORY = 0040000,
	S_PIPE = 0010000,
};

static __always_inline __u8 cause_of_fd(struct task_struct *task, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files, *file = NULL;
	__u32 type;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return OFF_CPU_CAUSE_other;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	if (!file)
		return OFF_CPU_CAUSE_other;
	type = BPF_CORE_READ(file, f_inode, i_mode) & S_TYPE;
	if (type == S_SOCKET)
		return OFF_CPU_CAUSE_net;
	if (type == S_PIPE)
		return OFF_CPU_CAUSE_pipe;
	if (type == S_REGULAR || type == S_BLOCK || type == S_DIRECTORY)
		return OFF_CPU_CAUSE_disk;
	return OFF_CPU_CAUSE_other;
}

/*
 * poll() of one descriptor is how clients wait for their server: that is the descriptor's cause.
 * Of none, it is a sleep; of several, or epoll, an event loop with nothing to do.
 */
static __always_inline __u8 cause_of_poll(struct task_struct *task, struct user_call *call,
					  __u8 *ret_idle)
{
	__u32 fd = 0;

	if (call->arg2 == 0)
		return OFF_CPU_CAUSE_sleep;
	if (call->arg2 == 1 && !bpf_probe_read_user(&fd, sizeof(fd), (void *)call->arg1)) {
		__u8 cause = cause_of_fd(task, fd);

		return cause == OFF_CPU_CAUSE_other ? OFF_CPU_CAUSE_poll : cause;
	}
	*ret_idle = 1;
	return OFF_CPU_CAUSE_poll;
}

static __always_inline __u8 cause_of_call(struct task_struct *task, struct user_call *call,
					  __u8 *ret_idle)
{
	switch (call->nr) {
	case NR_futex:
	case NR_futex_wait:
	case NR_futex_waitv:
		return OFF_CPU_CAUSE_lock;
	case NR_nanosleep:
	case NR_clock_nanosleep:
		return OFF_CPU_CAUSE_sleep;
	case NR_poll:
	case NR_ppoll:
		return cause_of_poll(task, call, ret_idle);
	case NR_select:
	case NR_pselect6:
		if (call->arg1 == 0)
			return OFF_CPU_CAUSE_sleep;
		*ret_idle = 1;
		return OFF_CPU_CAUSE_poll;
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2:
		*ret_idle = 1;
		return OFF_CPU_CAUSE_poll;
	case NR_accept:
	case NR_accept4:
		*ret_idle = 1;
		return OFF_CPU_CAUSE_net;
	case NR_connect:
	case NR_sendto:
	case NR_recvfrom:
	case NR_sendmsg:
	case NR_recvmsg:
	case NR_sendmmsg:
	case NR_recvmmsg:
		return OFF_CPU_CAUSE_net;
	case NR_wait4:
	case NR_waitid:
		return OFF_CPU_CAUSE_child;
	case NR_fsync:
	case NR_fdatasync:
	case NR_sync:
	case NR_syncfs:
	case NR_sync_file_range:
	case NR_io_getevents:
		return OFF_CPU_CAUSE_disk;
	case NR_read:
	case NR_write:
	case NR_readv:
	case NR_writev:
	case NR_pread64:
	case NR_pwrite64:
	case NR_preadv:
	case NR_pwritev:
	case NR_sendfile:
		return cause_of_fd(task, call->arg1);
	}
	return OFF_CPU_CAUSE_other;
}

/* The letter of /proc/PID/stat for TASK_* bits (include/linux/sched.h). */
static __always_inline __u8 state_letter(__u32 state)
{
	if (!state)
		return 'R';
	if (state & 1)
		return 'S';
	if (state & 2) /* with TASK_NOLOAD (0x400) it is idle: kernel threads */
		return state & 0x400 ? 'I' : 'D';
	if (state & 4)
		return 'T';
	return state & 8 ? 't' : '?';
}

/* ---- who can end it ---- */

/*
 * sched_waking also fires in interrupts, where the current thread is anybody. So it must be in a
 * system call that can end such a sleep; network traffic on the loopback device is delivered in
 * the sender's. A kernel thread is believed: it does such work for others.
 */
enum { NR_KERNEL_THREAD = -2, FUTEX_PRIVATE = 128 };
#define FUTEX_NOBODY (~0ULL)

static __always_inline bool call_wakes(long nr, __u8 cause)
{
	if (nr == NR_KERNEL_THREAD)
		return cause != OFF_CPU_CAUSE_sleep && cause != OFF_CPU_CAUSE_lock &&
		       cause != OFF_CPU_CAUSE_gil;
	if (nr == NR_kill || nr == NR_tkill || nr == NR_tgkill)
		return true;
	switch (cause) {
	case OFF_CPU_CAUSE_sleep:
	case OFF_CPU_CAUSE_preempt:
		return false;
	case OFF_CPU_CAUSE_lock:
	case OFF_CPU_CAUSE_gil:
		return nr == NR_futex || nr == NR_exit || nr == NR_exit_group;
	case OFF_CPU_CAUSE_net:
	case OFF_CPU_CAUSE_poll:
	case OFF_CPU_CAUSE_pipe:
		/* who takes bytes out makes room for who puts them in */
		return nr == NR_sendto || nr == NR_sendmsg || nr == NR_sendmmsg || nr == NR_write ||
		       nr == NR_writev || nr == NR_sendfile || nr == NR_connect || nr == NR_close ||
		       nr == NR_shutdown || nr == NR_read || nr == NR_recvfrom || nr == NR_recvmsg;
	}
	return true;
}

/*
 * Most locks are their process's own (FUTEX_PRIVATE_FLAG). Their waiters look again when a time is
 * over, which the timer's interrupt wakes them for while anybody is at a lock of his own.
 */
static __always_inline bool waker_fits(struct thread *t, __u32 tgid, long nr, __u32 waker_tgid,
				       __u64 waker_futex)
{
	if (!call_wakes(nr, t->off.cause) || waker_futex == FUTEX_NOBODY)
		return false;
	if (!t->futex)
		return true;
	return waker_tgid == tgid && (!waker_futex || waker_futex == t->futex);
}

/* Where a call wakes whoever sleeps there; 0: it is none of those, or moves sleepers elsewhere. */
static __always_inline __u64 futex_woken_by(struct user_call *call)
{
	__u32 command = call->arg2 & FUTEX_CMD_MASK;

	if (call->nr == NR_futex && (command == FUTEX_WAIT || command == FUTEX_CMD_WAIT_BITSET))
		return FUTEX_NOBODY; /* about to sleep itself */
	return call->nr == NR_futex && (command == FUTEX_WAKE || command == FUTEX_CMD_WAKE_BITSET)
		       ? call->arg1
		       : 0;
}

/* ---- out ---- */

/*
 * With very many switches even looking at one costs too much: the governor then has chance choose
 * which ones are looked at, before anything is known of them.
 */
static __always_inline bool off_cpu_leave_out(struct off_cpu *off)
{
	__u32 zero = 0, shift = 0;
	struct sampling *sampling = bpf_map_lookup_elem(&off_cpu_sampling, &zero);

	if (sampling)
		shift = sampling->skip_shift & 31;
	off->skip_shift = shift;
	off->left_out = shift && bpf_get_prandom_u32() << (32 - shift);
	return off->left_out;
}

static __always_inline void off_cpu_switch_out(struct task_struct *task, struct thread *t,
					       struct user_call *call, __u32 state, bool gil)
{
	struct off_cpu *off = &t->off;

	if (off_cpu_leave_out(off))
		return;
	off->waker_user[0] = 0;
	off->idle = 0;
	off->state = state_letter(state);
	off->syscall = call->nr;
	t->futex = state && call->nr == NR_futex && call->arg2 & FUTEX_PRIVATE ? call->arg1 : 0;
	if (!state)
		off->cause = OFF_CPU_CAUSE_preempt;
	else if (gil)
		off->cause = OFF_CPU_CAUSE_gil;
	else
		off->cause = cause_of_call(task, call, &off->idle);
	if (state && off->cause == OFF_CPU_CAUSE_other && (state & 2)) {
		if (call->nr < 0)
			off->cause = OFF_CPU_CAUSE_page_fault;
		else if (BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
			off->cause = OFF_CPU_CAUSE_disk;
	}
	/* a wake-up that was traced just before: it is this one's if it can be */
	if (!t->wake_ns ||
	    !waker_fits(t, task->tgid, off->waker_syscall, off->waker.host_pid, t->waker_futex))
		__builtin_memset(&off->waker, 0, sizeof(off->waker));
	off->user_hash = 0;
	off->user[0] = 0;
	if (off_cpu_user_stacks)
		off->user_hash = user_stack(task, off->user, OFF_CPU_USER_FRAMES);
	/* where it was preempted is a matter of chance: such intervals are summed without */
	if (!state)
		off->user_hash = 0;
}

/* ---- woken ---- */

enum { PF_KTHREAD = 0x200000 };

static __always_inline __u32 leader_ns_id(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return typed_task_ns_id(task->group_leader);
	return task_ns_id(BPF_CORE_READ(task, group_leader));
}

static __always_inline void off_cpu_woken(struct task_struct *task, struct thread *t, __u64 now)
{
	struct task_struct *waker = current_task();
	struct off_cpu_waker *to = &t->off.waker;
	struct user_call call = {};

	if (!current_tid() || t->off.left_out)
		return;
	if (BPF_CORE_READ(waker, flags) & PF_KTHREAD) {
		call.nr = NR_KERNEL_THREAD;
	} else {
		task_user_call(waker, &call);
		if (call.nr < 0)
			return;
	}
	/* not known yet what it sleeps for: see off_cpu_switch_out() */
	if (t->off_ns && !waker_fits(t, task->tgid, call.nr, current_tgid(), futex_woken_by(&call)))
		return;
	t->off.waker_syscall = call.nr;
	t->waker_futex = futex_woken_by(&call);
	to->host_tid = current_tid();
	to->host_pid = current_tgid();
	to->tid = typed_task_ns_id(waker);
	to->ident = task_ident(waker);
	to->pid = to->host_tid == to->host_pid ? to->tid : leader_ns_id(waker);
	bpf_get_current_comm(to->comm, sizeof(to->comm));
	if (now - t->off_ns >= off_cpu_min_ns && call.nr != NR_KERNEL_THREAD)
		user_stack(waker, t->off.waker_user, OFF_CPU_WAKER_FRAMES);
}

/* ---- in ---- */

static __always_inline void off_cpu_fill(struct off_cpu_event *event, struct task_struct *task,
					 struct thread *t, bool late)
{
	__u64 n;
	long bytes;

	header_set_task(&event->header, task);
	event->cpu = bpf_get_smp_processor_id();
	__builtin_memcpy(&event->off, &t->off, sizeof(event->off));
	bytes = late ? 0 : bpf_get_task_stack(task, event->kernel, sizeof(event->kernel), 0);
	n = bytes < 0 ? 0 : bytes / sizeof(event->kernel[0]);
	if (n < OFF_CPU_KERNEL_FRAMES) /* the helper leaves the rest as it was */
		event->kernel[n] = 0;
}

/* `shift`: one in so many is looked at, and stands for those that are not. */
static __always_inline void off_cpu_sum_add(struct off_cpu_sum *sum, __u64 ns, __u64 runq_ns,
					    __u32 shift)
{
	if (!sum->count || ns < sum->min_ns)
		sum->min_ns = ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
	sum->count += 1ULL << shift;
	sum->off_ns += ns << shift;
	sum->runq_ns += runq_ns << shift;
}

static __always_inline void off_cpu_profile_add(struct task_struct *task, struct thread *t,
						__u64 ns, __u64 runq_ns, bool late)
{
	struct off_cpu_profile_key key = {
		.host_tid = task->pid,
		.waker_host_tid = t->off.waker.host_tid,
		.user_hash = t->off.user_hash,
		.syscall = t->off.syscall,
		.cause = t->off.cause,
		.state = t->off.state,
	};
	__u32 side = off_cpu_profile_side & 1, shift = t->off.skip_shift & 31, zero = 0, rest;
	void *map = side ? (void *)&off_cpu_profile_1 : (void *)&off_cpu_profile_0;
	struct off_cpu_profile *profile = bpf_map_lookup_elem(map, &key);
	struct off_cpu_sum *sum;

	if (profile) {
		off_cpu_sum_add(&profile->sum, ns, runq_ns, shift);
		return;
	}
	profile = bpf_map_lookup_elem(&off_cpu_scratch, &zero);
	if (!profile)
		return;
	off_cpu_fill(&profile->first, task, t, late);
	__builtin_memset(&profile->sum, 0, sizeof(profile->sum));
	off_cpu_sum_add(&profile->sum, ns, runq_ns, shift);
	if (!bpf_map_update_elem(map, &key, profile, BPF_ANY))
		return;
	rest = side * OFF_CPU_CAUSE_MAX + t->off.cause;
	sum = bpf_map_lookup_elem(&off_cpu_profile_rest, &rest);
	if (sum)
		off_cpu_sum_add(sum, ns, runq_ns, shift);
}

#include "off_cpu_python.bpf.h"

/* The thread runs again. `late`: it does already, its kernel stack is another by now. */
static __always_inline void off_cpu_switch_in(struct task_struct *task, struct thread *t, __u64 end,
					      bool late)
{
	__u64 ns = end - t->off_ns, runq_ns = 0;
	struct off_cpu_event *event;

	if (t->off.left_out) {
		off_cpu_stat(STAT_SEEN, 1);
		off_cpu_stat(STAT_SAMPLED, 1);
		t->off.left_out = 0;
		return;
	}
	if (t->off.cause == OFF_CPU_CAUSE_preempt)
		runq_ns = ns;
	else if (t->wake_ns)
		runq_ns = end - (t->wake_ns > t->off_ns ? t->wake_ns : t->off_ns);
	off_cpu_profile_add(task, t, ns, runq_ns, late);
	if (ns >= off_cpu_min_ns && !late && off_cpu_put_off(task, t, end, runq_ns))
		return;
	off_cpu_stat(STAT_SEEN, 1);
	if (ns < off_cpu_min_ns) {
		off_cpu_stat(STAT_FILTERED, 1);
		return;
	}
	event = event_reserve_in(&off_cpu_events, &off_cpu_stats, sizeof(*event));
	if (!event)
		return;
	off_cpu_fill(event, task, t, late);
	event->header.start_ns = t->off_ns;
	event->header.end_ns = end;
	event->header.skip_shift = t->off.skip_shift;
	event->runq_ns = runq_ns;
	event_submit_in(&off_cpu_events, &off_cpu_stats, &off_cpu_sampling, event);
}

#endif
