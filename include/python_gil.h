/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * struct _gil_runtime_state (Include/internal/pycore_gil.h of CPython). The layout is the same in
 * 3.8 to 3.15; only pthread_mutex_t differs between machines. A free-threaded build
 * (Py_GIL_DISABLED) has 8 bytes in front, which every address of a GIL skips.
 */
#ifndef UNDERSPAN_PYTHON_GIL_H
#define UNDERSPAN_PYTHON_GIL_H

#ifndef __bpf__
#include <linux/types.h>
#endif

/* The members in front of the condition variable, under CPython's names. */
struct python_gil {
	__u64 interval;	   /* microseconds between requests to drop the GIL */
	__u64 last_holder; /* PyThreadState *: the present or last holder */
	__s32 locked;	   /* 1 held, 0 free, -1 not created */
	__s32 padding;
	__u64 switch_number; /* incremented when a thread other than last_holder takes the GIL */
};

#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
enum { PTHREAD_MUTEX_SIZE = 48 };
#else
enum { PTHREAD_MUTEX_SIZE = 40 };
#endif
enum { PTHREAD_COND_SIZE = 48, PTHREAD_MUTEX_OWNER = 8 };

/* Offsets of cond, mutex, switch_cond and switch_mutex. */
enum {
	PYTHON_GIL_COND = sizeof(struct python_gil),
	PYTHON_GIL_MUTEX = PYTHON_GIL_COND + PTHREAD_COND_SIZE,
	PYTHON_GIL_SWITCH_COND = PYTHON_GIL_MUTEX + PTHREAD_MUTEX_SIZE,
	PYTHON_GIL_SWITCH_MUTEX = PYTHON_GIL_SWITCH_COND + PTHREAD_COND_SIZE,
	PYTHON_GIL_SIZE = PYTHON_GIL_SWITCH_MUTEX + PTHREAD_MUTEX_SIZE,
};

#endif
