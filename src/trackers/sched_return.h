/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How bpf/sched.bpf.c learns that a thread which was off the CPU is about to be in user mode again,
 * for its Python stack (bpf/lib/off_cpu_python.bpf.h): from the kernel's sched_exit_tp tracepoint;
 * without it from rseq_update, and where a thread has no restartable sequences, from the ends of
 * system calls. The latter cost every system call of the host some 30 ns and are watched only once
 * such a thread is seen.
 */
#ifndef UNDERSPAN_SCHED_RETURN_H
#define UNDERSPAN_SCHED_RETURN_H

#include "sched.skel.h"

/* Before the object is loaded. */
void sched_return_open(struct sched_bpf *skeleton);
void sched_return_tick(struct sched_bpf *skeleton);
void sched_return_quiet(struct sched_bpf *skeleton);
/* Removes what the skeleton does not know of. */
void sched_return_close(void);

#endif
