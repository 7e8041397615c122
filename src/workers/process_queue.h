/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of jobs, one per process, and the choice of the next job: jobs of a process run one after
 * another, and each owner has a share of the readers. All functions: under the lock of readers.c.
 */
#ifndef UNDERSPAN_WORKERS_PROCESS_QUEUE_H
#define UNDERSPAN_WORKERS_PROCESS_QUEUE_H

#include "base/hash.h"
#include "workers/job.h"

struct job_list {
	struct job *first, *last;
};

/* Queue of jobs per process. */
struct process_queue {
	uint32_t host_pid;
	struct job_list jobs;	    /* without the running job */
	size_t n;		    /* including the running job */
	uint64_t since_round;	    /* round of the running job's start; 0: none running */
	uint64_t waits_since;	    /* round of entering the ready list */
	uint64_t owner;		    /* 0: unknown */
	struct reader_watch *watch; /* watch of the thread running the job */
	struct process_queue *next; /* next in the ready or busy list */
	UT_hash_handle hh;
};

struct process_queues {
	struct process_queue *all;
	struct process_queue *first_ready, *last_ready; /* with a runnable job */
	struct process_queue *busy;			/* with a running job */
	size_t n_busy;
	uint64_t round; /* number of the current round, from 1 */
};

void job_list_append(struct job_list *list, struct job *job);
struct job *job_list_take_first(struct job_list *list);

struct process_queue *process_queue_find(struct process_queues *s, uint32_t host_pid);
/* NULL: out of memory. */
struct process_queue *process_queue_new(struct process_queues *s, uint32_t host_pid);
void process_queue_free(struct process_queues *s, struct process_queue *q);

void process_queue_make_ready(struct process_queues *s, struct process_queue *q);
/* The first ready process allowed to run. NULL: none. */
struct process_queue *process_queue_take_ready(struct process_queues *s);
/* Moves a process with a started job to the busy list, and back out of the list. */
void process_queue_begin(struct process_queues *s, struct process_queue *q,
			 struct reader_watch *watch);
void process_queue_end(struct process_queues *s, struct process_queue *q);

/* Lets the reader of the running job be given up. */
void process_queue_give_up(struct process_queue *q);

bool process_queue_stalled(const struct process_queues *s, const struct process_queue *q);
/* Whether the process waits because too many jobs of its owner are stalled. */
bool process_queue_starved(const struct process_queues *s, const struct process_queue *q);
size_t process_queues_count_stalled(const struct process_queues *s);
/* Whether stalled readers use up the owner's share. */
bool process_queues_owner_stalled(const struct process_queues *s, uint64_t owner);

#endif
