/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A thread that waited for the GIL: bpf/lib/gil_wait.bpf.h -> src/trackers/gil_wait.c. */
#ifndef UNDERSPAN_EVENTS_GIL_WAIT_H
#define UNDERSPAN_EVENTS_GIL_WAIT_H

#include "events/event.h"
#include "python_stack.h"

enum {
	GIL_MAX_HOLDERS = 8,	 /* of one wait; the rest is summed in the last */
	GIL_MAX_PER_PROCESS = 8, /* the main one and those of subinterpreters */
};

/* ebpf_gil_wait.method */
enum gil_method { GIL_METHOD_AUTO, GIL_METHOD_SCHED, GIL_METHOD_CALLSITE, GIL_METHOD_UPROBE };

struct gil_holder {
	__u32 tid; /* as its PID namespace counts; 0: not known */
	__u32 host_tid;
	__u64 ident; /* see struct event_header */
	__u64 ns;    /* of the wait */
};

struct gil_wait_event {
	struct event_header header;
	__u64 runq_ns;	 /* at the end: woken, or in take_gil() again already, but no CPU */
	__u64 forced_ns; /* right before: forced to give the GIL away, it waited for a taker */
	struct gil_holder holders[GIL_MAX_HOLDERS]; /* in order; [0]: at the beginning */
	__u64 dropper_ident;
	__u32 dropper_tid; /* who gave it away at the end; 0: not known */
	__u32 dropper_host_tid;
	__u32 sleeps; /* times it slept: CPython looks again every 5 ms */
	__u8 n_holders;
	__u8 method; /* enum gil_method */
	__u8 pad[2];
	/* their frames follow, in this order: of the waiter, of holders[0] */
	struct python_stack_info py_stack, holder_py_stack;
};

/* All waits of one thread for one holder, however short, within an interval. */
struct gil_profile_key {
	__u32 host_tid;
	__u32 holder_tid;
};

struct gil_profile {
	struct event_header header; /* without times */
	__u64 waits, wait_ns, runq_ns, forced_ns, max_ns;
	__u32 holder_host_tid;
	__u32 pad;
};

/*
 * Where the GILs of a process lie; user space writes it when an interpreter appears and keeps it
 * right, a forked child inherits it.
 */
struct gil_process {
	__u64 gils[GIL_MAX_PER_PROCESS]; /* addresses as 3.8 lays the struct out; 0: no more */
	__u32 tstate_thread_id;		 /* offsets, see struct python_offsets */
	__u32 tstate_native_thread_id;
	__u32 by_callsite; /* its waits are seen by probes in it, not by the scheduler */
	__u32 pad;
};

/* One thread by what pthread_self() says in it. */
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
