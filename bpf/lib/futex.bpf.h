/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The futex calls: futex(2), futex_wait(2), futex_wake(2). */
#ifndef UNDERSPAN_FUTEX_BPF_H
#define UNDERSPAN_FUTEX_BPF_H

#include "lib/syscall.bpf.h"
#include "lib/task.bpf.h"

/* futex(2): an operation is a command with FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME or not */
enum {
	FUTEX_WAIT = 0,
	FUTEX_WAKE = 1,
	FUTEX_CMD_LOCK_PI = 6,
	FUTEX_CMD_UNLOCK_PI = 7,
	FUTEX_CMD_WAIT_BITSET = 9,
	FUTEX_CMD_WAKE_BITSET = 10,
	FUTEX_CMD_WAIT_REQUEUE_PI = 11,
	FUTEX_CMD_LOCK_PI2 = 13,
	FUTEX_CMD_MASK = 127,
	FUTEX_PRIVATE = 128,
};

/* What a call does to the word at its first argument. */
enum futex_use {
	FUTEX_USE_NONE, /* no futex call, a requeue of waiters, or several words (futex_waitv) */
	FUTEX_USE_SLEEPS,
	FUTEX_USE_WAKES,
};

static __always_inline enum futex_use futex_use_of(struct user_call *call)
{
	__u32 command = call->arg2 & FUTEX_CMD_MASK;

	if (call->nr == NR_futex_wait)
		return FUTEX_USE_SLEEPS;
	if (call->nr == NR_futex_wake)
		return FUTEX_USE_WAKES;
	if (call->nr != NR_futex)
		return FUTEX_USE_NONE;
	if (command == FUTEX_WAIT || command == FUTEX_CMD_WAIT_BITSET ||
	    command == FUTEX_CMD_LOCK_PI || command == FUTEX_CMD_LOCK_PI2 ||
	    command == FUTEX_CMD_WAIT_REQUEUE_PI)
		return FUTEX_USE_SLEEPS;
	return command == FUTEX_WAKE || command == FUTEX_CMD_WAKE_BITSET ||
			       command == FUTEX_CMD_UNLOCK_PI
		       ? FUTEX_USE_WAKES
		       : FUTEX_USE_NONE;
}

#endif
