/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A thread that was off the CPU: bpf/off_cpu/interval.bpf.h -> src/trackers/off_cpu.c. */
#ifndef UNDERSPAN_EVENTS_OFF_CPU_H
#define UNDERSPAN_EVENTS_OFF_CPU_H

#include "events/event.h"
#include "python_stack.h"

enum { OFF_CPU_KERNEL_FRAMES = 24, OFF_CPU_USER_FRAMES = 32, OFF_CPU_WAKER_FRAMES = 16 };

/* ebpf_off_cpu.cause; append only */
#define OFF_CPU_CAUSES(X)                                                                          \
	X(other)                                                                                   \
	X(preempt) X(gil) X(lock) X(net) X(disk) X(page_fault) X(sleep) X(poll) X(pipe) X(child)

enum off_cpu_cause {
#define X(name) OFF_CPU_CAUSE_##name,
	OFF_CPU_CAUSES(X)
#undef X
		OFF_CPU_CAUSE_MAX,
};

/* The thread that caused the wake-up; all 0: none (a timer, a device). */
struct off_cpu_waker {
	__u32 tid, host_tid; /* tid in the waker's PID namespace */
	__u32 pid, host_pid;
	__u64 ident; /* see struct event_header */
	char comm[EVENT_COMM_LEN];
};

enum off_cpu_left_out {
	OFF_CPU_EXAMINED,
	OFF_CPU_SAMPLED,      /* counted at its end: the weights stand for it */
	OFF_CPU_NOT_MEASURED, /* began while the tracker was out */
};

/*
 * By the walks so far. A native thread of a Python process has had no PyThreadState: it is a
 * library's. Its wait for a lock is idle if it is one for a condition or a semaphore, for which
 * glibc waits with FUTEX_WAIT_BITSET (sysdeps/nptl/futex-internal.c). BPF sets `idle` for such a
 * wait of any thread; user space judges the other threads by their Python stacks.
 */
enum off_cpu_thread_kind {
	OFF_CPU_THREAD_UNKNOWN,
	OFF_CPU_THREAD_NATIVE,
	OFF_CPU_THREAD_PYTHON,
};

/* The part of an interval that is known at the switch out and the wake-up. */
struct off_cpu {
	/* what each wake-up reads and writes, mostly on another CPU: together */
	__u32 user_hash;
	__s16 syscall;	 /* number; -1: in none */
	__u8 cause;	 /* enum off_cpu_cause */
	__u8 state;	 /* letter of ps: R S D T t ...; F: frozen by its cgroup */
	__u8 idle;	 /* a wait for work, rather than a delay; lock: see thread_kind */
	__u8 skip_shift; /* 1 in (1 << skip_shift) intervals is examined: see struct sampling */
	__s16 waker_syscall;
	__u8 left_out;	  /* enum off_cpu_left_out: the present interval is not examined */
	__u8 thread_kind; /* enum off_cpu_thread_kind */
	__s16 slept_in;	  /* the call of the last sleep: see call_goes_on() */
	struct off_cpu_waker waker;
	__u64 lock;			 /* address of the lock waited for; 0: none, or not known */
	__u64 user[OFF_CPU_USER_FRAMES]; /* return addresses, leaf first, 0: no more */
	__u64 waker_user[OFF_CPU_WAKER_FRAMES]; /* the waker's own */
};

struct off_cpu_event {
	struct event_header header;
	__u64 runq_ns; /* time in the run queue: since the wake-up or the preemption */
	__u64 kernel[OFF_CPU_KERNEL_FRAMES];
	struct off_cpu off;
	__u32 cpu;			   /* CPU of the switch in */
	struct python_stack_info py_stack; /* frames follow */
};

/*
 * Sum of all intervals of a thread with the same user stack, cause and waker. Python stacks are
 * sampled: see bpf/off_cpu/python_stack.bpf.h.
 */
struct off_cpu_profile_key {
	__u64 py_stack; /* key of the Python stack; 0: none so far */
	__u32 host_tid;
	__u32 waker_host_tid;
	__u32 user_hash;
	__s16 syscall;
	__u8 cause;
	__u8 state;
};

struct off_cpu_sum {
	__u64 count, off_ns, runq_ns, min_ns, max_ns;
};

struct off_cpu_profile {
	struct off_cpu_sum sum;	    /* beside the key in memory: each interval changes it */
	struct off_cpu_event first; /* first interval, without times */
};

#endif
