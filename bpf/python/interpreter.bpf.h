/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads a CPython interpreter with the offsets that user space found (include/python_offsets.h).
 * All memory is untrusted: a failed read returns 0.
 */
#ifndef UNDERSPAN_PYTHON_INTERPRETER_BPF_H
#define UNDERSPAN_PYTHON_INTERPRETER_BPF_H

#include "lib/futex.bpf.h"
#include "lib/task.bpf.h"
#include "python_gil.h"
#include "python_offsets.h"

/* Limit of interpreters searched per process. */
enum { PYTHON_MAX_INTERPRETERS = 32 };

/* The slot of `address` in a direct-mapped cache of `slots` entries, a power of two. */
static __always_inline __u32 cache_slot(__u64 address, __u32 slots)
{
	return address * 0x9e3779b97f4a7c15ULL >> 40 & (slots - 1);
}

static __always_inline __u64 read_user_u64(__u64 address)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/*
 * Returns the interpreter of the current thread, which must hold a GIL, and that GIL in *ret_gil. A
 * GIL names its holder's PyThreadState. Up to 3.11 all interpreters share a single GIL, so its
 * holder is the current thread. Since 3.12 each interpreter has a GIL: the search compares the
 * holder's native_thread_id.
 */
static __always_inline __u64 python_current_interp(const struct python_offsets *o, __u64 runtime,
						   __u64 *ret_gil)
{
	__u64 interp, holder;
	__u32 tid;

	if (o->gil_kind == PYTHON_GIL_IN_RUNTIME) {
		*ret_gil = runtime + o->gil;
		holder = read_user_u64(*ret_gil + o->gil_last_holder);
		return holder ? read_user_u64(holder + o->tstate_interp) : 0;
	}
	tid = typed_task_ns_id(current_task());
	interp = read_user_u64(runtime + o->runtime_interpreters_head);
	for (int i = 0; i < PYTHON_MAX_INTERPRETERS && interp; i++) {
		__u64 gil = read_user_u64(interp + o->gil);
		__s32 locked = 0;

		/* a thread that switches interpreters stays last_holder of the GIL it leaves */
		bpf_probe_read_user(&locked, sizeof(locked), (void *)(gil + o->gil_locked));
		holder = read_user_u64(gil + o->gil_last_holder);
		if (locked == 1 && read_user_u64(holder + o->tstate_native_thread_id) == tid) {
			*ret_gil = gil;
			return read_user_u64(holder + o->tstate_interp);
		}
		interp = read_user_u64(interp + o->interp_next);
	}
	return 0;
}

/* The present address of generation k's statistics, 0 when unreadable. */
static __always_inline __u64 python_gc_stats_address(const struct python_offsets *o, __u64 runtime,
						     __u64 interp, __u32 k)
{
	__u64 base = interp + o->gc_stats;
	__u8 slot = 0;

	if (o->gc_stats_kind == PYTHON_GC_STATS_IN_RUNTIME)
		return runtime + o->gc_stats + k * o->gc_stats_size + o->gc_collections;
	if (!interp || k >= PYTHON_GENERATIONS)
		return 0;
	if (o->gc_stats_kind == PYTHON_GC_STATS_OF_INTERP)
		return base + k * o->gc_stats_size + o->gc_collections;
	base = read_user_u64(base);
	if (!base ||
	    bpf_probe_read_user(&slot, sizeof(slot), (void *)(base + o->gc_ring_index[k])) ||
	    slot >= o->gc_ring_slots[k])
		return 0;
	return base + o->gc_ring_start[k] + slot * o->gc_stats_size + o->gc_collections;
}

/* The number of objects left by the last full collection. False: not known. */
static __always_inline bool python_gc_long_lived(const struct python_offsets *o, __u64 runtime,
						 __u64 interp, __u64 *ret)
{
	__u64 base = o->gc_collecting_runtime ? runtime : interp;

	return o->gc_long_lived && base &&
	       !bpf_probe_read_user(ret, sizeof(*ret), (void *)(base + o->gc_long_lived));
}

/*
 * True at the entry of a collecting function that will find a collection in progress and return.
 * Since 3.13 the function itself tests the flag; before, the caller did, and the flag is always set
 * at entry.
 */
static __always_inline bool python_gc_returns_at_once(const struct python_offsets *o, __u64 interp)
{
	__u32 collecting = 0;

	if (o->minor < 13 || !interp || !o->gc_collecting_interp)
		return false;
	bpf_probe_read_user(&collecting, sizeof(collecting),
			    (void *)(interp + o->gc_collecting_interp));
	return collecting != 0;
}

/*
 * Do the user registers show a wait for the GIL? take_gil() sleeps in pthread_cond_timedwait() on
 * gil->cond: with glibc in futex() on a word inside gil->cond.
 */
static __always_inline __u32 python_futex_is_gil_wait(struct pt_regs *regs,
						      const struct python_offsets *o, __u64 gil)
{
	typeof(SYSCALL_NR_FIELD(regs)) nr;
	__u64 word, operation;

	/* single reads: all registers at once exceed the callers' BPF stack */
	if (bpf_probe_read_kernel(&nr, sizeof(nr), &SYSCALL_NR_FIELD(regs)) || nr != NR_futex ||
	    bpf_probe_read_kernel(&word, sizeof(word), &SYSCALL_ARG1(regs)) ||
	    bpf_probe_read_kernel(&operation, sizeof(operation), &SYSCALL_ARG2(regs)))
		return 0;
	return (word - (gil + o->gil_cond) < PTHREAD_COND_SIZE) &
	       ((operation & FUTEX_CMD_MASK) == FUTEX_CMD_WAIT_BITSET);
}

#endif
