/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's names of threads. Read for the first row of a thread, refreshed every second while rows
 * arrive (names change), and read a few milliseconds after a thread's start, so that short-lived
 * threads have names, too. A token bucket bounds the cost: without tokens, rows have no name or the
 * cached name.
 */
#ifndef UNDERSPAN_ROWS_NAMES_H
#define UNDERSPAN_ROWS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct process_event;
struct row_context;

struct thread_id {
	uint32_t host_pid, host_tid;
	uint32_t pid, tid; /* ids of its PID namespace */
	uint64_t ident;	   /* pthread_self(); 0: unknown */
};

/* '': unknown. `event_ns`: time of the row's event. Valid until names_tick(). */
const char *names_find(struct row_context *context, const struct thread_id *thread,
		       uint64_t event_ns);

/* A PROCESS_THREAD event. */
/*
 * Whether module threading was asked and did not know the thread: a library's, or one of module
 * _thread. `event_ns`: as above.
 */
bool names_is_unknown(struct row_context *context, uint32_t host_pid, uint32_t host_tid,
		      uint64_t event_ns);

void names_thread_started(const struct process_event *event);

void names_tick(uint64_t now_ns);

/* Time until the next work of names_tick(), at most `limit_ns`. */
uint64_t names_due_in(uint64_t now_ns, uint64_t limit_ns);

/* About every second: evicts entries over the limits. Invalidates names returned before. */
void names_trim(void);

void names_done(void);

#endif
