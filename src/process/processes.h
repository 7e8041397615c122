/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery of Python processes in all mount and PID namespaces: at the start, at exec() and
 * fork(), until exit. Events come from bpf/process.bpf.c. A process that has ended, is starting,
 * unreadable or not a Python is not an error.
 *
 * Collector thread only. Data of a process and its files are read on reader threads (discovery.h,
 * state_check.h): until then the process is not in the table; after two seconds without an answer
 * the process is added as refused for the time being.
 */
#ifndef UNDERSPAN_PROCESS_PROCESSES_H
#define UNDERSPAN_PROCESS_PROCESSES_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "events/process.h"
#include "process/process.h"
#include "process/tracking.h"

struct processes_hooks {
	struct tracking_hooks tracking;
	/* A thread of a tracked process started (PROCESS_THREAD event). */
	void (*thread_started)(const struct process_event *event);
};

/*
 * To be called after tracked_map_start(). `chosen`: tracks only these processes, their running
 * descendants, and all later children. (A daemon reparented before is not a descendant.) 0, or
 * -ESRCH: a chosen process does not exist.
 */
int processes_start(const struct pid_list *chosen, const struct processes_hooks *hooks,
		    struct why *why);
/* The agent stops: running processes become reportable. To be called before processes_stop(). */
void processes_end(void);
/* To be called before readers_stop(): results of running reads are dropped. */
void processes_stop(void);

/* Handles a record of the ring buffer. */
void processes_handle(const struct process_event *event);

/* After lost events: discovers all processes of the host again, removes ended ones. */
void processes_rescan(void);

/* Whether all processes of the start have been looked at, except stalled ones. */
bool processes_scanned(void);

/* Runs due rechecks. To be called every 10-100 ms. */
void processes_tick(uint64_t now_ns);

/* Time until the next work of processes_tick(), at most `limit_ns`. */
uint64_t processes_due_in(uint64_t now_ns, uint64_t limit_ns);

#endif
