/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * The interpreter of a process, for programs that walk Python stacks of threads with or without the
 * GIL. Written by user space; a forked child inherits the entry.
 */
#ifndef UNDERSPAN_PYTHON_PROCESS_H
#define UNDERSPAN_PYTHON_PROCESS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum { PYTHON_PROCESS_BINARIES = 256, PYTHON_PROCESS_SLOTS = 2 };

struct python_process {
	__u64 runtime; /* address of _PyRuntime */
	__u32 binary;  /* index of the process's struct python_offsets */
	/*
	 * Distances from pthread_self() to the places where the C library may keep CPython's
	 * PyThreadState pointer: the value of pthread_getspecific(), or a thread-local variable. 0:
	 * unknown. The PyThreadState names its thread, so a wrong slot is noticed.
	 */
	__s32 tstate_slots[PYTHON_PROCESS_SLOTS];
	__u32 pad;
};

#endif
