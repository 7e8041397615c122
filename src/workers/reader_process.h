/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader processes: read untrusted files, memory and /proc/PID/maps, where the kernel may wait for
 * a program of the target (FUSE, userfaultfd) and no signal ends the wait. Each reading thread has
 * a reader process, forked on demand by the fork server (fork_server.h). A hung process is killed,
 * not waited for, and replaced.
 *
 * The argument of a read function is a flat struct, copied to the process and back. In programs
 * without reader_processes_start() (unit tests, fuzzers) the function is called directly.
 */
#ifndef UNDERSPAN_WORKERS_READER_PROCESS_H
#define UNDERSPAN_WORKERS_READER_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "workers/read_function.h"

/*
 * Limits of reader processes, working or hung, including those left by earlier agents. Each tenant
 * (container, login: cgroup_tenant()) and each user has a share. An owner never gets more than what
 * remains afterwards, so that a further owner always finds room.
 */
enum { READERS_MAX = 24, READERS_OF_TENANT = 8, READERS_OF_OWNER = 6 };

static inline uint32_t reader_tenant(uint64_t owner)
{
	return (uint32_t)(owner >> 32);
}

/*
 * Forks the fork server; to be called before creating threads, BPF descriptors or secrets.
 * `memory_limit`: limit of the agent's memory cgroup; UINT64_MAX: none.
 */
int reader_processes_start(uint64_t memory_limit, struct why *why);

/* Kills all reader processes and waits at most 200 ms for their end. */
void reader_processes_stop(void);
/* False: the fork server was killed, reads are no longer possible. */
bool reader_processes_can_start(void);
/* Async-signal-safe; only before the first reader process exists. */
void reader_processes_kill(void);

/*
 * Runs the function in the calling thread's reader process. 0: `argument` and *extra (may be NULL)
 * hold the result. -ECANCELED: given up; -EIO: the process ended without an answer (memory or CPU
 * limit, or a truncated file); `argument` is unchanged, *extra empty.
 */
int reader_process_run(read_function run, void *argument, size_t size, struct read_extra *extra);

/* The file being read; all 0: none, or several. Inodes of FUSE files are chosen by the server. */
struct read_file {
	uint64_t dev, ino;
};

/*
 * Lets another thread give up this thread's call within 50 ms. The hung process is recorded with
 * its target until its end. To be set before give_up; NULL: not used.
 */
struct reader_watch {
	atomic_bool give_up;
	uint64_t owner; /* proc_owner() of the target process */
	uint32_t host_pid;
	struct read_file file;
};
void reader_process_watch(const struct reader_watch *watch);

/* Gives up calls of this thread after `ns`; 0: never. */
void reader_process_patience(uint64_t ns);

/* Hung processes: of an owner, of all owners. */
struct reader_use {
	size_t owner, tenant;
};
struct reader_use reader_processes_hung_of(uint64_t owner);
size_t reader_processes_hung(void);
/* Whether a process hangs on this target process or file. */
bool reader_process_hangs_on(uint32_t host_pid, struct read_file file);

/* Ends the calling thread's reader process. */
void reader_process_end(void);

/* CPU time of this thread's reader processes, and of all. */
uint64_t reader_process_thread_cpu_ns(void);
uint64_t reader_process_cpu_ns(void);

#endif
