// SPDX-License-Identifier: Apache-2.0
/* Jobs that read a process's memory. See process_job.h. */
#include "process/process_job.h"

#include "process/process_table.h"

/* Worker thread: jobs of a process run one at a time. */
static void run(struct job *job)
{
	struct process_job *j = (struct process_job *)job;
	struct process_memory *copy = j->argument;

	*copy = j->process->memory;
	j->err = reader_process_run(j->read, j->argument, j->size, NULL);
	if (!j->err)
		j->process->memory.learned = copy->learned;
}

static void on_done(struct job *job)
{
	struct process_job *j = (struct process_job *)job;

	j->done(j);
	process_release(j->process);
	free(j);
}

bool process_job_submit(struct process_job *job, struct process *process)
{
	job->process = process;
	job->job.host_pid = process->host_pid;
	job->job.done = on_done;
	if (!job->job.run)
		job->job.run = run;
	if (!readers_submit(&job->job)) {
		free(job);
		return false;
	}
	process_hold(process);
	return true;
}
