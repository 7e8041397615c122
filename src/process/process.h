/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Python process: the one object with all knowledge of the process. Collector thread only, except
 * `memory` (process_memory.h). Life: discovery adds the process (processes.c); exit, exec() or a
 * failed state check end the process (process_table.c): processes_find() no longer returns the
 * object, but events from before the end find the object for two more seconds. A job holds a
 * reference (process_job.h).
 */
#ifndef UNDERSPAN_PROCESS_PROCESS_H
#define UNDERSPAN_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/util.h"
#include "cpython/live.h"
#include "process/binary.h"
#include "process/process_memory.h"
#include "python_process.h"

struct known_frame;
struct known_thread;
struct process_job;

enum { SERVICE_NAME_MAX = 128 };

struct process {
	uint32_t host_pid;
	struct binary_file file; /* .binary NULL: refused (see `refused`), or ended */
	struct why refused;
	struct python_live live; /* .threads 0: not checked, or see `unread` */
	struct why unread;
	uint32_t invalid_reads;
	bool unread_reported; /* checked() was called with `unread`, and checks continue */
	uint64_t ended_ns;    /* time of exit or exec(); 0: in the table */

	/* grace_period.c's */
	uint64_t serial;
	bool reportable, check_waits;
	/* state_check.c's: the pending check */
	struct state_check *check;

	/* service_name.c's; "": the environment names none, or was not read so far */
	char service[SERVICE_NAME_MAX + 1];
	enum { SERVICE_UNREAD, SERVICE_BEING_READ, SERVICE_READ } service_state;
	uint64_t service_due_ns; /* SERVICE_UNREAD: read again not before this time */

	/* written by jobs; host_pid 0: never had a binary */
	struct process_memory memory;
	/* runtime_addresses.c's */
	struct {
		bool wanted, complete;
		struct python_process published;
		struct process_job *job; /* the running search; NULL: none */
	} addresses;
	/* rows/names.c's and rows/stack.c's caches; the functions empty them at the end */
	struct known_thread *known_threads;
	void (*forget_threads)(struct process *process);
	struct known_frame *known_frames;
	size_t frames_bytes; /* size of known_frames */
	void (*forget_frames)(struct process *process);
	struct token_bucket frames_bucket;

	size_t holds; /* references of jobs */
	bool dropped; /* freed with the last reference */
	UT_hash_handle hh;
};

/* The Python process with the pid; NULL: none. */
const struct process *processes_find(uint32_t host_pid);

/*
 * The process of an event at `event_ns`; NULL: not a readable Python. An ended process has cached
 * data only.
 */
struct process *process_of_event(uint32_t host_pid, uint64_t event_ns);

/* Iterates over all processes, including ended processes; the first after NULL. */
struct process *process_next(const struct process *process);

size_t processes_count(void);

#endif
