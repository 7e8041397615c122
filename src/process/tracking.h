/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a Python process in the agent: added after its discovery or fork(), announced to the
 * trackers, checked, perhaps refused, ended. Keeps the table of processes and the map of BPF in
 * step.
 */
#ifndef UNDERSPAN_PROCESS_TRACKING_H
#define UNDERSPAN_PROCESS_TRACKING_H

#include "process/process.h"

struct tracking_hooks {
	/* A Python process appeared; `process` is valid until gone() */
	void (*appeared)(const struct process *process);
	/* The process lived long enough to be reported (grace_period.h), or the data changed. */
	void (*reportable)(const struct process *process);
	/* Still in the table. Also called for processes that never appeared. */
	void (*gone)(uint32_t host_pid);
	/*
	 * The interpreter's state was checked (cpython/live.h): `live` or `unread` is set. Never
	 * before reportable().
	 */
	void (*checked)(const struct process *process);
};

void tracking_start(const struct tracking_hooks *hooks);
void tracking_stop(void);

/* A discovered process. Without binary: `why` is the reason of the refusal. */
void tracking_add(uint32_t host_pid, const struct binary_file *file, const struct why *why,
		  uint64_t start_time);

/* A child of a known process. */
void tracking_fork(uint32_t host_pid, const struct process *parent);

/*
 * The process ended, called exec(), or runs a different program: the one place where all knowledge
 * of a process is dropped.
 */
void tracking_end(uint32_t host_pid);

/* A stalled process turned out not to be a Python: BPF need not track it. */
void tracking_remove(uint32_t host_pid);

#endif
