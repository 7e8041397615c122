/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The waker of a thread that was off the CPU. */
#ifndef UNDERSPAN_OFF_CPU_WAKER_BPF_H
#define UNDERSPAN_OFF_CPU_WAKER_BPF_H

#include "lib/futex.bpf.h"
#include "off_cpu/profile.bpf.h"
#include "off_cpu/user_stack.bpf.h"
#include "sched/thread.bpf.h"

/*
 * sched_waking also runs in interrupts, where the current thread is unrelated. So a waker must be
 * in a system call that can end such a sleep; traffic on the loopback device is delivered inside
 * the sender's call. Kernel threads are accepted: they work on behalf of user threads.
 */
enum { NR_KERNEL_THREAD = -2 };
#define FUTEX_NOBODY (~0ULL)

static __always_inline bool call_releases_lock(long nr, long waiting_nr)
{
	if (nr == NR_exit || nr == NR_exit_group)
		return true;
	switch (waiting_nr) {
	case NR_flock:
	case NR_fcntl:
		return nr == NR_flock || nr == NR_fcntl || nr == NR_close;
	case NR_semop:
	case NR_semtimedop:
		return nr == NR_semop || nr == NR_semtimedop;
	default:
		return nr == NR_futex || nr == NR_futex_wake;
	}
}

/* `waiting_nr`: the call in which the woken thread sleeps, because of `cause`. */
static __always_inline bool call_wakes(long nr, long waiting_nr, __u8 cause)
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
		return call_releases_lock(nr, waiting_nr);
	case OFF_CPU_CAUSE_net:
	case OFF_CPU_CAUSE_poll:
	case OFF_CPU_CAUSE_pipe:
		/* taking bytes out makes room for the writer */
		return nr == NR_sendto || nr == NR_sendmsg || nr == NR_sendmmsg || nr == NR_write ||
		       nr == NR_writev || nr == NR_sendfile || nr == NR_connect || nr == NR_close ||
		       nr == NR_shutdown || nr == NR_read || nr == NR_recvfrom || nr == NR_recvmsg;
	}
	return true;
}

/*
 * Most futexes are private to a process (FUTEX_PRIVATE_FLAG). A waiter with a timeout is woken by
 * the timer's interrupt, while the current thread may be in a futex call on an unrelated lock.
 */
static __always_inline bool waker_fits(struct thread *t, __u32 tgid, long nr, __u32 waker_tgid,
				       __u64 waker_futex)
{
	if (!call_wakes(nr, t->off.syscall, t->off.cause) || waker_futex == FUTEX_NOBODY)
		return false;
	if (!t->futex)
		return true;
	return waker_tgid == tgid && (!waker_futex || waker_futex == t->futex);
}

/* The futex woken by a call; 0: not a wake-up, or a requeue of waiters. */
static __always_inline __u64 futex_woken_by(struct user_call *call)
{
	switch (futex_use_of(call)) {
	case FUTEX_USE_SLEEPS:
		return FUTEX_NOBODY; /* about to sleep */
	case FUTEX_USE_WAKES:
		return call->arg1;
	default:
		return 0;
	}
}

/*
 * Identity of the current thread: read once a second, since a name may change. A thread is woken by
 * the same few threads again and again, and reading takes 0.12 us.
 */
static __always_inline void waker_read(struct thread *t, struct task_struct *waker, __u64 now)
{
	enum { WAKER_KEEP_NS = 1000000000 };
	__u64 thread = bpf_get_current_pid_tgid();
	__u64 mm = has_typed_current() ? (__u64)waker->mm : (__u64)BPF_CORE_READ(waker, mm);
	struct off_cpu_waker *to = &t->off.waker;
	struct waker_known *known = &t->waker;

	to->host_tid = thread;
	if (known->thread == thread && known->mm == mm && now - known->read_ns < WAKER_KEEP_NS)
		return;
	known->thread = thread;
	known->mm = mm;
	known->read_ns = now;
	to->host_pid = thread >> 32;
	to->tid = typed_task_ns_id(waker);
	to->ident = task_ident(waker);
	to->pid = to->host_tid == to->host_pid ? to->tid : typed_task_ns_tgid(waker);
	bpf_get_current_comm(to->comm, sizeof(to->comm));
}

static __always_inline void off_cpu_woken(struct task_struct *task, struct thread *t, __u64 now)
{
	struct task_struct *waker = current_task();
	struct user_call call = {};
	__u64 futex;

	if (t->off.left_out || !current_tid())
		return;
	if ((has_typed_current() ? waker->flags : BPF_CORE_READ(waker, flags)) & PF_KTHREAD) {
		call.nr = NR_KERNEL_THREAD;
	} else {
		task_user_call(waker, &call);
		if (call.nr < 0)
			return;
	}
	futex = futex_woken_by(&call);
	/* before off_cpu_switch_out() the cause is unknown */
	if (t->off_ns && !waker_fits(t, task->tgid, call.nr, current_tgid(), futex))
		return;
	t->off.waker_syscall = call.nr;
	t->waker_futex = futex;
	waker_read(t, waker, now);
	if (now - t->off_ns >= off_cpu_min_ns && call.nr != NR_KERNEL_THREAD)
		user_stack(waker, t->off.waker_user, OFF_CPU_WAKER_FRAMES);
}

#endif
