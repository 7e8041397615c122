/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job that reads a process's memory. Holds a reference to the process; a reader process runs
 * read() on a copy of the argument, and the result is stored in the process.
 */
#ifndef UNDERSPAN_PROCESS_PROCESS_JOB_H
#define UNDERSPAN_PROCESS_PROCESS_JOB_H

#include "process/process.h"
#include "workers/readers.h"

/* First member of the caller's struct, which is heap memory. */
struct process_job {
	struct job job; /* .ran: false if the agent stops; .run NULL: read() is run */
	struct process *process;

	/*
	 * Reader process: `argument` is flat, copied there and back, and begins with a struct
	 * process_memory.
	 */
	read_function read;
	void *argument;
	size_t size;
	/* Collector, once: the job is freed after. job.ran and `err` tell whether read() ran. */
	void (*done)(struct process_job *job);
	int err;
};

/* Takes over `job`. False (freed): readers are overloaded, or stalled by the process. */
bool process_job_submit(struct process_job *job, struct process *process);

/* Whether read() ran and the process is unchanged since the job was submitted. */
static inline bool process_job_succeeded(const struct process_job *job)
{
	return job->job.ran && !job->err && !job->process->ended_ns && job->process->file.binary;
}

#endif
