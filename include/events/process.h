/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Life of processes: bpf/process.bpf.c -> src/probe/processes.c. Not a tracker: no rows. */
#ifndef UNDERSPAN_EVENTS_PROCESS_H
#define UNDERSPAN_EVENTS_PROCESS_H

#include <linux/types.h>

enum process_event_kind {
	PROCESS_EXEC,	/* any process: it may be a Python now */
	PROCESS_FORK,	/* of a tracked process; the child is tracked already */
	PROCESS_EXIT,	/* of a tracked process; it is tracked no more */
	PROCESS_THREAD, /* a tracked process started one */
};

struct process_event {
	__u32 kind;
	__u32 host_pid;
	__u32 parent_host_pid; /* PROCESS_FORK */

	/* PROCESS_THREAD: */
	__u32 host_tid;
	__u32 pid, tid; /* as the thread's innermost PID namespace counts */
	__u64 ident;	/* see struct event_header */
	__u64 time_ns;	/* CLOCK_MONOTONIC */
};

/*
 * Value of the map `processes`, keyed by host pid: these are tracked, but for those that are only
 * refused. Children inherit all of it.
 */
enum process_flags {
	PROCESS_PYTHON = 1,  /* user space saw an interpreter; ends with exec */
	PROCESS_CHOSEN = 2,  /* --pid or a descendant of one; survives exec */
	PROCESS_REFUSED = 4, /* its interpreter shall not be read; ends with exec */
};

struct process_info {
	__u32 flags;
	__u32 pad;
};

#endif
