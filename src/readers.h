/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for what may have to wait: another process's memory, which may be swapped out, served by
 * a program or under a lock that its owner keeps, and files, which may lie on another machine. The
 * collector, which never waits, gives jobs away and takes them back when they are done. The jobs of
 * one process are done one after the other, in order: it can hold up one thread, and when it does
 * there is another one for the others. Everything here but run() is the collector's thread's.
 */
#ifndef UNDERSPAN_READERS_H
#define UNDERSPAN_READERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first member of what is to be read. */
struct job {
	uint32_t host_pid;    /* whose memory or files */
	bool finds_processes; /* is not for the sake of rows */
	/* On a reader's thread: has the job for itself, and nothing of the collector's. */
	void (*run)(struct job *job);
	/* On the collector's thread: the job is the caller's again. !ran: the agent ends. */
	void (*done)(struct job *job);
	bool ran;
	struct job *next; /* the readers' */
};

/* False, and the job stays the caller's: too many wait, or its process holds up its reader. */
bool readers_give(struct job *job);

/*
 * How often readers_take() was called, at intervals of a tenth of a second or more: the time in
 * which the collector itself is stopped or gets no CPU says nothing about a job.
 */
enum { READERS_PATIENCE = 20 };
uint64_t readers_rounds(void);

/* Has a job of this process been running for more rounds than that? Nobody waits for it any more.
 */
bool readers_held_up_by(uint32_t host_pid);

/* Becomes readable when a job is done. */
int readers_fd(void);

/* Calls done() of what is done, and then `each`, when not NULL, with its process. */
void readers_take(void (*each)(uint32_t host_pid));

/* Is there any job that is not done and not held up? */
bool readers_busy(void);

/*
 * Calls done() of all jobs but those that are held up: these are left to the process's end. False:
 * there are such, and what they use has to be left to it, too.
 */
bool readers_stop(void);

/* The CPU time that went to jobs that find processes: of the readers, and of the collector. */
struct readers_cpu {
	uint64_t readers_ns, collector_ns;
};
struct readers_cpu readers_discovery_cpu(void);

/*
 * What became of the look-ups for the row that is being made: zeroed before, read after. A look-up
 * that has to be read first has "<unread>" or nothing for an answer, and calls lookup_waits().
 */
struct lookups {
	uint32_t waits_for; /* host pid: an answer is on its way, the row may be made again */
	bool gone;	    /* code that died before it was read */
	bool unread;	    /* code, or a function's name, that was not read */
	bool unnamed;	    /* a Python process's thread without a name */
};
extern struct lookups lookups;

void lookup_waits(uint32_t host_pid);

#endif
