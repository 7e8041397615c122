/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of threads, as Python knows them, by thread. Read when a row first needs one, again
 * every second while rows come (names change), and a few milliseconds after a thread was started,
 * so that threads that live shortly have names too. What it costs is bounded per second: when
 * that is used up, rows go without or with the name of a moment ago.
 */
#ifndef UNDERSPAN_PYTHON_NAMES_H
#define UNDERSPAN_PYTHON_NAMES_H

#include <stdint.h>

struct target;
struct process_event;

struct thread_id {
	uint32_t host_pid, host_tid;
	uint32_t pid, tid; /* as its PID namespace counts */
	uint64_t ident;	   /* pthread_self(); 0: not known */
};

/* '' when unknown. `event_ns`: when the thread did what the row tells. Lives until names_tick(). */
const char *names_find(const struct thread_id *thread, uint64_t event_ns);

/* A PROCESS_THREAD event. */
void names_thread_started(const struct process_event *event);

void names_tick(uint64_t now_ns);

/* How long until names_tick() has something to do, at most `limit_ns`. */
uint64_t names_due_in(uint64_t now_ns, uint64_t limit_ns);

/* For target.c: frees what is known of its threads; what is more than the agent keeps. */
void names_forget(struct target *target);
void names_trim(struct target *target);

void names_done(void);

#endif
