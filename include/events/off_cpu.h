/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A thread that was off the CPU: bpf/lib/off_cpu.bpf.h -> src/trackers/off_cpu.c. */
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

/* The thread that made it runnable; all 0: none did (a timer, a device). */
struct off_cpu_waker {
	__u32 tid, host_tid; /* tid: as its own PID namespace counts */
	__u32 pid, host_pid;
	__u64 ident; /* see struct event_header */
	char comm[EVENT_COMM_LEN];
};

/* What is known of a thread that is off the CPU. */
struct off_cpu {
	__u64 user[OFF_CPU_USER_FRAMES];	/* return addresses, leaf first, 0: no more */
	__u64 waker_user[OFF_CPU_WAKER_FRAMES]; /* the waker's own */
	struct off_cpu_waker waker;
	__u32 user_hash;
	__s16 syscall;	 /* number; -1: in none */
	__u8 cause;	 /* enum off_cpu_cause */
	__u8 state;	 /* as ps shows it: R S D T t ... */
	__u8 idle;	 /* nothing to do, rather than something that takes time */
	__u8 skip_shift; /* one in (1 << skip_shift) is looked at: see struct sampling */
	__s16 waker_syscall;
	__u8 left_out; /* this one is not */
	__u8 pad[3];
};

struct off_cpu_event {
	struct event_header header;
	__u64 runq_ns; /* of it runnable: since the wake-up, or since it was preempted */
	__u64 kernel[OFF_CPU_KERNEL_FRAMES];
	struct off_cpu off;
	__u32 cpu;			   /* that it runs on now */
	struct python_stack_info py_stack; /* its frames follow */
};

/* All intervals of one thread with one user stack, cause and waker, within a time. */
struct off_cpu_profile_key {
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
	struct off_cpu_event first; /* of the intervals; without times */
	struct off_cpu_sum sum;
};

#endif
