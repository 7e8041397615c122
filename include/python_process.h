/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the interpreter of one process lies, for programs that walk the Python stacks of threads
 * that need not hold the GIL; user space writes it, a forked child inherits it.
 */
#ifndef UNDERSPAN_PYTHON_PROCESS_H
#define UNDERSPAN_PYTHON_PROCESS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum { PYTHON_PROCESS_BINARIES = 256 };

struct python_process {
	__u64 runtime; /* address of _PyRuntime */
	__u32 binary;  /* index of its struct python_offsets */
	/*
	 * How far from the thread's pthread_self() the C library keeps the pthread_getspecific()
	 * value in which CPython has the thread's state; 0: not known.
	 */
	__u32 tstate_slot;
};

#endif
