/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python processes of the host, in every mount and PID namespace: found at start, as they
 * exec and fork, forgotten as they exit. Fed by bpf/process.bpf.c; a process that is gone,
 * half-started, unreadable or no Python is no error.
 *
 * The table is the collector's. What has to be read of a process or its files is read on readers'
 * threads (look.h, state_check.h): until then the process is not in the table, and when nothing
 * answers for two seconds it is, as one that is refused for the time being.
 */
#ifndef UNDERSPAN_PROCESSES_H
#define UNDERSPAN_PROCESSES_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "events/process.h"
#include "probe/binaries.h"
#include "python/live.h"

struct process {
	uint32_t host_pid;
	struct binary_file file; /* .binary NULL: refused, see `refused` */
	struct why refused;
	struct python_live live; /* .threads 0: not looked at yet, or see `unread` */
	struct why unread;
	uint32_t unsound_looks;
	bool told_unread; /* the hook checked() had `unread`, and it is looked at further */
	struct state_check *check; /* that waits or is being done; state_check.c's */
	UT_hash_handle hh;
};

struct processes_hooks {
	/* A Python process appeared; `process` lives until gone() */
	void (*appeared)(const struct process *process);
	void (*gone)(uint32_t host_pid);
	/* A thread of a tracked process was started: a PROCESS_THREAD event. */
	void (*thread_started)(const struct process_event *event);
	/* The state of its interpreter was looked at, see python/live.h: `live` or `unread` is set.
	 */
	void (*checked)(const struct process *process);
};

/*
 * `tracked_map_fd` is the BPF map `processes`. With `chosen`, only these processes and what they
 * start are tracked. Returns 0, or -ESRCH when a chosen process does not exist.
 */
int processes_start(int tracked_map_fd, const struct pid_list *chosen,
		    const struct processes_hooks *hooks, struct why *why);
/* Before readers_stop(): what is being read is thrown away when it comes. */
void processes_stop(void);

/* One record of the ring buffer. */
void processes_handle(const struct process_event *event);

/* Events were lost: looks at all processes of the host, and forgets those that are gone. */
void processes_rescan(void);

/* Have all that were there at the start been looked at, but for those that do not answer? */
bool processes_settled(void);

/* Looks again at processes that had not loaded their interpreter yet. Every 10-100 ms. */
void processes_tick(uint64_t now_ns);

/* How long until processes_tick() has something to do, at most `limit_ns`. */
uint64_t processes_due_in(uint64_t now_ns, uint64_t limit_ns);

/* The Python process of this pid, NULL when there is none. */
const struct process *processes_find(uint32_t host_pid);

size_t processes_count(void);

#endif
