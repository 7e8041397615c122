/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads for reads that may block: memory of watched processes (swapped out, served by a
 * program, or behind a lock) and files (possibly remote). A thread waits only for its reader
 * process (reader_process.h), which can be given up. The collector submits jobs, receives finished
 * jobs, and never blocks.
 *
 * Jobs of a process run one after another, in order: a process can stall one thread at most, and
 * the remaining threads serve further processes. Stalled jobs per owner are limited, so that each
 * owner finds readers. A hung reader counts in the host's load average: READERS_MAX limits the
 * number, and a hung job keeps its reader until an answer. All functions except run(): collector
 * thread only.
 */
#ifndef UNDERSPAN_WORKERS_READERS_H
#define UNDERSPAN_WORKERS_READERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/job.h"

/*
 * False (the caller keeps the job): queue full, or readers are stalled by the process, its file or
 * too many files of its owner (proc_owner()).
 */
bool readers_submit(struct job *job);
/* Whether readers_submit() refuses because too many files of the owner stall readers. */
bool readers_owner_is_full(uint32_t host_pid);

/* Number of the current round of readers_complete(), for READERS_PATIENCE. */
uint64_t readers_rounds(void);

/* Whether a job of the process is stalled: runs for more than READERS_PATIENCE rounds. */
bool readers_stalled_by(uint32_t host_pid);
/* Whether the first job waits because of stalled jobs of the owner. */
bool readers_starved(uint32_t host_pid);

/* Readable when a job is done. */
int readers_fd(void);

/* Calls done() of finished jobs, then `each` (may be NULL) with the process. */
void readers_complete(void (*each)(void *context, uint32_t host_pid), void *context);

/* Whether jobs are pending; stalled jobs do not count. */
bool readers_busy(void);

/*
 * Calls done() of all jobs except stalled jobs, which remain until the agent's end. False: there
 * are stalled jobs, whose data must not be freed.
 */
bool readers_stop(void);

/* CPU time of discovery jobs: of readers and collector. */
struct readers_cpu {
	uint64_t readers_ns, collector_ns;
};
struct readers_cpu readers_discovery_cpu(void);

#endif
