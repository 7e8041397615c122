/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A wait for the GIL: bpf/gil_wait/wait.bpf.h -> src/trackers/gil_wait.c. */
#ifndef UNDERSPAN_EVENTS_GIL_WAIT_H
#define UNDERSPAN_EVENTS_GIL_WAIT_H

#include "events/event.h"
#include "python_stack.h"

enum {
	GIL_MAX_HOLDERS = 8,	 /* per wait; the last entry sums up further holders */
	GIL_MAX_PER_PROCESS = 8, /* the main interpreter's GIL and those of subinterpreters */
};

/* ebpf_gil_wait.method */
enum gil_method { GIL_METHOD_AUTO, GIL_METHOD_SCHED, GIL_METHOD_CALLSITE, GIL_METHOD_UPROBE };

struct gil_holder {
	__u32 tid; /* in the PID namespace of the thread; 0: unknown */
	__u32 host_tid;
	__u64 ident; /* see struct event_header */
	__u64 ns;    /* of the wait */
};

struct gil_wait_event {
	struct event_header header;
	__u64 runq_ns;	 /* in the run queue at the end, after the wake-up or inside take_gil() */
	__u64 forced_ns; /* just before: forced to drop the GIL, waiting for a taker */
	struct gil_holder holders[GIL_MAX_HOLDERS]; /* in order; [0]: at the beginning */
	__u64 dropper_ident;
	__u32 dropper_tid; /* the thread that dropped the GIL at the end; 0: unknown */
	__u32 dropper_host_tid;
	__u32 sleeps; /* number of sleeps: CPython retries every 5 ms */
	__u8 n_holders;
	__u8 method; /* enum gil_method */
	__u8 pad[2];
	/* frames follow, in order: of the waiter, of holders[0] */
	struct python_stack_info py_stack, holder_py_stack;
};

/* Sum of all waits of a thread for a holder, however short, within an interval. */
struct gil_profile_key {
	__u32 host_tid;
	__u32 holder_tid;
};

struct gil_profile {
	__u64 waits, wait_ns, runq_ns, forced_ns, max_ns; /* beside the key in memory */
	struct event_header header;			  /* without times */
	__u32 holder_host_tid;
	__u32 pad;
};

/*
 * The GIL addresses of a process. User space writes the entry when an interpreter appears, and
 * updates it; a forked child inherits the entry.
 */
struct gil_process {
	__u64 gils[GIL_MAX_PER_PROCESS]; /* addresses of struct python_gil; 0: end of the list */
	__u32 tstate_thread_id;		 /* offsets, see struct python_offsets */
	__u32 tstate_native_thread_id;
	__u32 by_callsite; /* waits come from uprobes (method callsite), not from the scheduler */
	__u32 pad;
};

/*
 * Processes that ran, by host pid modulo this: user space searches only these for the GILs of new
 * subinterpreters.
 */
enum { GIL_RAN_SLOTS = 4096 };

/* A thread by pthread_self(). */
struct gil_thread_key {
	__u64 thread_pointer;
	__u32 host_pid;
	__u32 pad;
};

struct gil_thread_ids {
	__u32 tid, host_tid;
	__u64 ident; /* see struct event_header */
};

#endif
