/* SPDX-License-Identifier: Apache-2.0 */
/* A job for the worker threads. See readers.h. */
#ifndef UNDERSPAN_WORKERS_JOB_H
#define UNDERSPAN_WORKERS_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/reader_process.h"

/* Header of a job: first member of the caller's struct. */
struct job {
	uint32_t host_pid;     /* target process */
	struct read_file file; /* file being read, if a single file */
	bool finds_processes;  /* a discovery job, not for rows */
	/* Reader thread: exclusive access to the job, none to the collector's data. */
	void (*run)(struct job *job);
	/* Collector thread: the caller owns the job again. !ran: the agent stops. */
	void (*done)(struct job *job);
	bool ran;
	struct job *next; /* internal */
};

/*
 * Stall limit in rounds: calls of readers_complete() at intervals of at least 0.1 s. Time in which
 * the collector does not run does not count.
 */
enum { READERS_PATIENCE = 20 };

#endif
