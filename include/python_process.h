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

enum { PYTHON_PROCESS_BINARIES = 256, PYTHON_PROCESS_SLOTS = 2 };

struct python_process {
	__u64 runtime; /* address of _PyRuntime */
	__u32 binary;  /* index of its struct python_offsets */
	/*
	 * How far from the thread's pthread_self() the C library keeps what CPython has the
	 * thread's state in: the value of pthread_getspecific(), or a thread-local variable. 0: not
	 * known. The state that is found there says whose it is.
	 */
	__s32 tstate_slots[PYTHON_PROCESS_SLOTS];
	__u32 pad;
};

#endif
