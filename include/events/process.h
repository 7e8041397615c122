/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Life of processes: bpf/process.bpf.c -> src/process/processes.c. Not a tracker: no rows. */
#ifndef UNDERSPAN_EVENTS_PROCESS_H
#define UNDERSPAN_EVENTS_PROCESS_H

#include <linux/types.h>

enum process_event_kind {
	PROCESS_EXEC,	/* any process: may run a Python now */
	PROCESS_FORK,	/* of a tracked process; the child is tracked already */
	PROCESS_EXIT,	/* of a tracked process, which was just removed from the map */
	PROCESS_THREAD, /* a tracked process started a thread */
};

struct process_event {
	__u32 kind;
	__u32 host_pid;
	__u32 parent_host_pid; /* PROCESS_FORK */

	/* PROCESS_THREAD: */
	__u32 host_tid;
	__u32 pid, tid; /* in the thread's innermost PID namespace */
	__u64 ident;	/* see struct event_header */
	__u64 time_ns;	/* CLOCK_MONOTONIC */
};

/*
 * Value of the map `processes`, keyed by host pid. Children inherit all flags. A refused Python is
 * still tracked for signals that need no access to the interpreter. A process refused before being
 * identified as a Python (its file does not respond) is in the map only for its children, and is
 * not tracked. The agent is never tracked, not even as a child of a selected process: each row
 * about the agent would cause a further row.
 */
enum process_flags {
	PROCESS_PYTHON = 1,  /* has an interpreter (or an imitation); ends with exec */
	PROCESS_CHOSEN = 2,  /* selected by --pid, or a descendant; survives exec */
	PROCESS_REFUSED = 4, /* the interpreter must not be read; ends with exec */
	PROCESS_OWN = 8, /* the agent and its reader processes; as the only flag ends with exec */
};

struct process_info {
	__u32 flags;
	__u32 pad;
};

/*
 * The map `process_slots`: numbers of entries of `processes`, by the low bits of the host pid.
 * Nearly every process of a host is in a slot with 0, and is told from a tracked process by one
 * load.
 */
enum { PROCESS_SLOTS = 16384 };

#endif
