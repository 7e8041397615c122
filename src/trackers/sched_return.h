/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects that a thread is about to return to user mode after an interval off the CPU, to read its
 * Python stack (bpf/off_cpu/python_stack.bpf.h): by tracepoint sched_exit_tp; otherwise
 * rseq_update; for threads without restartable sequences the exits of system calls, which cost
 * every system call of the host about 30 ns. The latter are attached only after such a thread was
 * seen, and reported.
 */
#ifndef UNDERSPAN_TRACKERS_SCHED_RETURN_H
#define UNDERSPAN_TRACKERS_SCHED_RETURN_H

#include "sched.skel.h"
#include "trackers/tracker.h"

/* To be called before loading. */
void sched_return_open(struct sched_bpf *skeleton);
void sched_return_tick(struct sched_bpf *skeleton, const struct tracker_output *output);
void sched_return_quiet(struct sched_bpf *skeleton);
/* Removes links unknown to the skeleton. */
void sched_return_close(void);

#endif
