/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* An event loop that did not poll: bpf/loop_stall.bpf.c -> src/trackers/loop_stall.c. */
#ifndef UNDERSPAN_EVENTS_LOOP_STALL_H
#define UNDERSPAN_EVENTS_LOOP_STALL_H

#include "events/event.h"
#include "python_stack.h"

/* ebpf_loop_stall.loop; append only */
enum loop_kind { LOOP_NONE, LOOP_ASYNCIO, LOOP_UVLOOP, LOOP_GEVENT, LOOP_TRIO, LOOP_KIND_MAX };

/* Why the thread was asleep during a stall. */
enum loop_part {
	LOOP_GIL,
	LOOP_LOCK,
	LOOP_NET,
	LOOP_DISK,
	LOOP_SLEEP,
	LOOP_OTHER,
	LOOP_PARTS,
};

/* start: a poll returned; end: the next poll of the same descriptor began */
struct loop_stall_event {
	struct event_header header;
	__u64 runq_ns;
	__u64 part_ns[LOOP_PARTS]; /* asleep; without `split` all of the time is in LOOP_OTHER */
	__u64 stack_at_ns;	   /* since the start */
	__u32 waiting;		   /* descriptors ready at the next poll */
	__u8 kind;		   /* enum loop_kind */
	__u8 split;		   /* the thread's context switches were seen */
	__u8 gil_known;
	__u8 waiting_known;
	struct python_stack_info py_stack; /* frames follow */
	__u32 pad;
};

/*
 * A thread that polls an epoll descriptor, see bpf/loop_stall/loop.bpf.h. User space reads the
 * members up to `kind`.
 */
struct loop_thread {
	__u32 host_tid, host_pid;
	__u32 epoll_fd; /* of the loop */
	__u32 candidate_fd, candidate_polls;
	__u8 kind;	/* enum loop_kind; LOOP_NONE: no loop so far */
	__u8 polls;	/* in the system call, on epoll_fd */
	__u8 pending;	/* `event` waits for the result of the poll */
	__u8 off_part;	/* enum loop_part of the interval since off_ns */
	__u8 off_slot;	/* enum loop_stack of that interval */
	__u8 off_stack; /* whether that stack was taken */
	__u8 longest_stack, cpu_stack;
	__u8 longest_slot;
	__u8 send_stack; /* enum loop_stack + 1, for `event`; 0: none */
	__u8 pad[2];
	__u64 busy_ns;		     /* the poll returned; 0: polls, or unknown */
	__u64 exec_ns, run_delay_ns; /* of the thread at that time */
	__u64 gil;		     /* address, 0: unknown */
	__u64 off_ns;		     /* switched out since; 0: no interval is open */
	__u64 off_on_ns;	     /* the thread's time on a CPU at the switch out */
	__u64 off_delay_ns;	     /* the same of its time in the run queue */
	__u64 part_ns[LOOP_PARTS];
	__u64 longest_ns, longest_at_ns; /* longest sleep, begin of that sleep */
	__u64 sampled_at_ns;		 /* age of the stall at the last sample on a CPU */
	__u64 next_sample_ns;
	__s64 tokens_ns; /* struct token_bucket: time for walks */
	__u64 refilled_ns;
	struct loop_stall_event event;
};

/* A thread whose context switches and CPU clock are watched; written by user space. */
struct loop_watch {
	__u64 since_ns;
	__u32 slot; /* index in loop_clocks */
	__u32 pad;
};

enum { LOOP_THREADS_MAX = 1024 };

#endif
