/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The GILs of a process: addresses, contents, and the threads that a GIL names. */
#ifndef UNDERSPAN_GIL_WAIT_GIL_BPF_H
#define UNDERSPAN_GIL_WAIT_GIL_BPF_H

#include "gil_wait/events.bpf.h"
#include "gil_wait/holders.bpf.h"
#include "lib/compat.bpf.h"
#include "python/interpreter.bpf.h"
#include "sched/thread.bpf.h"
#include "python_gil.h"

enum gil_word {
	GIL_NONE,
	GIL_COND,	 /* take_gil(): waits on gil->cond */
	GIL_LOCK,	 /* take_gil() and drop_gil(): waits for a lock of the GIL's struct */
	GIL_CPU,	 /* take_gil(): not asleep, but without a CPU */
	GIL_SWITCH_COND, /* drop_gil(): forced to drop the GIL, waits on switch_cond for a taker */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* host pid */
	__type(value, struct gil_process);
} gil_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct gil_thread_key);
	__type(value, struct gil_thread_ids);
} gil_threads SEC(".maps");

const volatile bool gil_wait_runs = true;

/*
 * The time at which waits end, set by user space before detaching the programs one by one. From
 * then on every program of the object returns at once: otherwise a wait could begin or continue
 * without an end.
 */
volatile __u64 gil_end_ns = 0;

/* Cleared by user space. */
volatile __u8 gil_ran[GIL_RAN_SLOTS];

/* A store only after user space has cleared the slot: CPUs share the cache line. */
static __always_inline void gil_process_ran(__u32 host_pid)
{
	__u32 slot = host_pid & (GIL_RAN_SLOTS - 1);

	if (!gil_ran[slot])
		gil_ran[slot] = 1;
}

/* ---- from a thread state to a thread ---- */

/* The time of the last change of gil_threads, by the low bits of the host pid. */
enum { GIL_CHANGED_SLOTS = 256, GIL_RECENT_HOLDERS = 4 };
volatile __u64 gil_threads_changed_ns[GIL_CHANGED_SLOTS];

static __always_inline void gil_thread_put(const struct gil_thread_key *key,
					   const struct gil_thread_ids *ids)
{
	bpf_map_update_elem(&gil_threads, key, ids, BPF_ANY);
	gil_threads_changed_ns[key->host_pid & (GIL_CHANGED_SLOTS - 1)] = bpf_ktime_get_ns();
}

/*
 * Records the current thread's ids under the thread pointer, by which the interpreter knows the
 * thread. Returns the ids.
 */
static __always_inline struct gil_thread_ids gil_publish_current(struct task_struct *task)
{
	struct gil_thread_key key = {
		.thread_pointer = current_thread_pointer(task),
		.host_pid = current_tgid(),
	};
	struct gil_thread_ids ids = {
		.tid = task_ns_id(task),
		.host_tid = current_tid(),
		.ident = task_ident(task),
	};
	struct gil_thread_ids *known = bpf_map_lookup_elem(&gil_threads, &key);

	if (!known || known->host_tid != ids.host_tid)
		gil_thread_put(&key, &ids);
	return ids;
}

/* The same, and notes it in the thread's record. Global: the verifier explores it once. */
__noinline int gil_publish_self(void)
{
	struct task_struct *task = current_task();
	struct thread *t = thread_find(task);

	if (!t)
		return 0;
	gil_publish_current(task);
	t->thread_pointer = current_thread_pointer(task);
	return 0;
}

/*
 * Is the thread one of the GIL's last holders? Mostly: the dropper wakes the next holder. The
 * history is read anyway; a look-up in gil_threads takes half a microsecond from cold memory. Not
 * on arm64, where `ident` is unknown.
 */
static __always_inline const struct gil_thread_ids *
gil_recent_holder(struct gil_history *history, const struct gil_thread_key *key)
{
	__u64 since = gil_threads_changed_ns[key->host_pid & (GIL_CHANGED_SLOTS - 1)];
	const struct gil_change *change = NULL;

	for (__u32 i = 1; i <= GIL_RECENT_HOLDERS; i++) {
		change = gil_change_at(history, history->n - i);
		if (change->holder.ident == key->thread_pointer)
			break;
	}
	/* a thread that ended leaves its pointer to a thread that starts */
	return change->holder.ident == key->thread_pointer && change->holder.host_tid &&
			       change->ns > since && change->check == gil_change_check(change)
		       ? &change->holder
		       : NULL;
}

/* The ids of the thread that owns `tstate`, a thread of the current process. */
static __always_inline struct gil_thread_ids gil_holder_of(struct gil_process *process,
							   struct task_struct *task, __u64 tstate,
							   struct gil_history *history)
{
	struct gil_thread_key key = { .host_pid = current_tgid() };
	const struct gil_thread_ids *known = NULL;
	struct gil_thread_ids ids = {};

	key.thread_pointer = read_user_u64(tstate + process->tstate_thread_id);
	ids.ident = key.thread_pointer;
	if (history && key.thread_pointer)
		known = gil_recent_holder(history, &key);
	if (known)
		return *known;
	known = bpf_map_lookup_elem(&gil_threads, &key);
	if (known)
		return *known;
	/* the owner was not switched out since the agent started */
	if (process->tstate_native_thread_id)
		ids.tid = read_user_u64(tstate + process->tstate_native_thread_id);
	/* in the host's own PID namespace */
	if (task_ns_id(task) == (__u32)BPF_CORE_READ(task, pid))
		ids.host_tid = ids.tid;
	return ids;
}

/* The part of a GIL that contains the futex word; *ret_gil is the GIL's address. */
static __always_inline __u32 gil_word_of(struct gil_process *process, struct user_call *call,
					 __u64 *ret_gil)
{
	__u32 command = call->arg2 & FUTEX_CMD_MASK;

	for (int i = 0; i < GIL_MAX_PER_PROCESS; i++) {
		__u64 gil = process->gils[i], offset = call->arg1 - gil;

		if (!gil)
			return GIL_NONE;
		if (offset < PYTHON_GIL_COND || offset >= PYTHON_GIL_SIZE)
			continue;
		*ret_gil = gil;
		if (offset < PYTHON_GIL_MUTEX)
			return command == FUTEX_CMD_WAIT_BITSET ? GIL_COND
			       : command == FUTEX_WAIT		? GIL_LOCK
								: GIL_NONE;
		if (offset < PYTHON_GIL_SWITCH_COND || offset >= PYTHON_GIL_SWITCH_MUTEX)
			return command == FUTEX_WAIT ? GIL_LOCK : GIL_NONE;
		return command == FUTEX_CMD_WAIT_BITSET ? GIL_SWITCH_COND : GIL_NONE;
	}
	return GIL_NONE;
}

/* Reads the GIL at `address`; false: unreadable, or no GIL. */
static __always_inline bool gil_read(__u64 address, struct python_gil *ret)
{
	if (bpf_probe_read_user(ret, sizeof(*ret), (void *)address)) {
		gil_stat(STAT_READ_FAIL, 1);
		return false;
	}
	/* the check fails when the interpreter is gone and the memory was reused */
	return (ret->locked == 0 || ret->locked == 1) && !ret->padding && ret->interval &&
	       !(ret->interval >> 32);
}

#endif
