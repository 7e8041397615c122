/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lock a thread waits for: the address of the futex word, in the waiter's address space. A lock
 * of CPython 3.13+ (PyMutex) is a byte, and a waiter sleeps on a semaphore of its own, in a struct
 * wait_entry on its stack (Python/parking_lot.c), beside the address of the lock.
 */
#ifndef UNDERSPAN_OFF_CPU_LOCK_BPF_H
#define UNDERSPAN_OFF_CPU_LOCK_BPF_H

#include "lib/futex.bpf.h"
#include "lib/task.bpf.h"
#include "off_cpu/user_stack.bpf.h"
#include "python/threads.bpf.h"

enum {
	OWN_STACK_BYTES = 4096,	    /* a semaphore of the waiting function's callers is this near */
	PARKING_LOT_SINCE = 13,	    /* CPython 3.13 */
	WAIT_ENTRY_ADDR_BEFORE = 8, /* from wait_entry.sema back to wait_entry.addr */
	PARKED = 2,		    /* _Py_HAS_PARKED: set in the lock before its waiter sleeps */
};

/* The lock of the wait_entry with this semaphore; 0: the semaphore is in no wait_entry. */
static __always_inline __u64 parked_lock(__u64 semaphore)
{
	__u64 lock = 0;
	__u8 state = 0;

	if (bpf_probe_read_user(&lock, sizeof(lock),
				(void *)(semaphore - WAIT_ENTRY_ADDR_BEFORE)) ||
	    bpf_probe_read_user(&state, sizeof(state), (void *)lock))
		return 0;
	return state & PARKED ? lock : 0;
}

/*
 * The lock behind a futex word on the current thread's own stack. 0: not known, as in a Python
 * whose version could not be determined. Global: see python/threads.bpf.h.
 */
__noinline __u64 off_cpu_lock_on_stack(__u64 futex)
{
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);

	if (!o)
		return process_find(current_tgid()) ? 0 : futex;
	return o->minor < PARKING_LOT_SINCE ? futex : parked_lock(futex);
}

static __always_inline __u64 off_cpu_lock(struct task_struct *task, struct user_call *call)
{
	__u64 futex = futex_use_of(call) == FUTEX_USE_SLEEPS ? call->arg1 : 0;

	if (futex && futex - task_user_position(task).sp < OWN_STACK_BYTES)
		return off_cpu_lock_on_stack(futex);
	return futex;
}

#endif
