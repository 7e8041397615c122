/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who had a GIL when. A thread that waits learns who has it only when it goes to sleep; meanwhile
 * it may change hands many times. So the last changes of each GIL are kept, as all its waiters
 * and droppers see them: who drops it wakes one that sleeps, if one does, and that one has it
 * next; when it was not quick enough, it sees who was before it sleeps again.
 */
#ifndef UNDERSPAN_GIL_HOLDERS_BPF_H
#define UNDERSPAN_GIL_HOLDERS_BPF_H

#include "stack_share.bpf.h"
#include "thread.bpf.h"

enum {
	GIL_MAX_CHANGES = 16, /* of holders during one sleep; a power of two */
	GIL_OTHER_HOLDERS = GIL_MAX_HOLDERS - 1,
};

struct gil_history_key {
	__u64 gil;
	__u32 host_pid;
	__u32 pad;
};

struct gil_change {
	__u64 ns; /* since when */
	struct gil_thread_ids holder;
};

/* The Python stack of a thread that holds it, see gil_stack.bpf.h. */
struct gil_sample {
	__u64 ns; /* when it was taken */
	__u64 tstate, stack;
	__u64 check; /* the others xor'ed: two CPUs may write at the same time */
};

struct gil_history {
	__u64 n; /* changes ever; the last ones are kept */
	struct stack_share stacks;
	struct gil_sample sample;
	struct gil_change changes[GIL_MAX_CHANGES];
};

/* LRU: interpreters end without a word. Without its history a sleep is its first holder's. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct gil_history_key);
	__type(value, struct gil_history);
} gil_histories SEC(".maps");

static const struct gil_history no_gil_history;

/* The compiler may not take the mask, which the verifier needs, for superfluous. */
static __always_inline struct gil_change *gil_change_at(struct gil_history *history, __u64 n)
{
	barrier_var(n);
	return &history->changes[n & (GIL_MAX_CHANGES - 1)];
}

static __always_inline struct gil_history *gil_history_of(__u32 host_pid, __u64 gil)
{
	struct gil_history_key key = { .gil = gil, .host_pid = host_pid };

	return bpf_map_lookup_elem(&gil_histories, &key);
}

/*
 * `holder` has it since `ns`, or earlier. Most who call this hold the GIL's own lock; two that do
 * not may write to the same place, and one of the changes is lost.
 */
static __always_inline void gil_held_by(__u32 host_pid, __u64 gil, __u64 ns,
					struct gil_thread_ids holder)
{
	struct gil_history_key key = { .gil = gil, .host_pid = host_pid };
	struct gil_history *history = bpf_map_lookup_elem(&gil_histories, &key);
	struct gil_change *change;

	if (!holder.tid)
		return;
	if (!history) {
		bpf_map_update_elem(&gil_histories, &key, &no_gil_history, BPF_ANY);
		history = bpf_map_lookup_elem(&gil_histories, &key);
		if (!history)
			return;
	}
	if (gil_change_at(history, history->n - 1)->holder.tid == holder.tid)
		return;
	change = gil_change_at(history, history->n);
	change->ns = ns;
	change->holder = holder;
	history->n++;
}

/* ---- the holders of one wait ---- */

static __always_inline struct gil_holder *gil_holder_at(struct gil_wait *w, __u32 n)
{
	barrier_var(n);
	return &w->holders[n & (GIL_MAX_HOLDERS - 1)];
}

/*
 * The verifier follows both ways of a jump, in each turn of each loop around it, and keeps in
 * memory what it knew at many of them. The loops below are one in the other: with jumps in them
 * they were four fifths of what it did for a context switch's program, and half of the agent's
 * start. 1 or 0, of numbers below 2^63.
 */
static __always_inline __u64 is_less(__u64 a, __u64 b)
{
	__u64 less = a - b;

	barrier_var(less); /* else the compiler makes a jump of it */
	return less >> 63;
}

static __always_inline __u64 is_same(__u32 a, __u32 b)
{
	return is_less(a ^ b, 1);
}

/* What it reads from a map the verifier does not know: it goes through what follows once. */
static __always_inline struct gil_holder *gil_holder_now(struct gil_wait *w)
{
	return gil_holder_at(w, *(volatile __u8 *)&w->holder);
}

/*
 * Too many for one row: the one that had it shortest joins those who share the last place, but
 * not the first, who had it when the wait began. Its place is the new one's.
 */
static __always_inline void gil_join_shortest(struct gil_wait *w)
{
	struct gil_holder *others = gil_holder_at(w, GIL_OTHER_HOLDERS);
	__u64 least = w->holders[1].ns, shortest = 1;

	for (__u32 i = 2; i < GIL_OTHER_HOLDERS; i++) {
		__u64 less = is_less(w->holders[i].ns, least);

		least -= (least - w->holders[i].ns) * less;
		shortest += (i - shortest) * less;
	}
	w->holder = shortest;
	others->tid = others->host_tid = 0;
	others->ident = 0;
	others->ns += gil_holder_now(w)->ns;
}

/* From now on it is the wait's holder. Not inlined: its callers have no room on the stack left. */
static __noinline void gil_wait_held_by(struct gil_wait *w, struct gil_thread_ids ids)
{
	struct gil_holder *holder;
	__u64 known = 0, place = 0;
	__u32 n;

	if (w->n_holders == 1 && !w->holders[0].tid) /* nobody had seen it before */
		w->n_holders = 0;
	n = *(volatile __u8 *)&w->n_holders;
	for (__u32 i = 0; i < GIL_MAX_HOLDERS; i++) {
		__u64 same = is_less(i, n) & is_same(w->holders[i].tid, ids.tid) & ~known;

		place |= i * same;
		known |= same;
	}
	w->holder = known ? place : n;
	if (known)
		return;
	if (n < GIL_MAX_HOLDERS)
		w->n_holders = n + 1;
	else
		gil_join_shortest(w);
	holder = gil_holder_now(w);
	holder->tid = ids.tid;
	holder->host_tid = ids.host_tid;
	holder->ident = ids.ident;
	if (n) /* else the first, which has its time already if it was not known before */
		holder->ns = 0;
}

/* The sleep from `begin` to `end` is over: shares it out among those who had the GIL meanwhile. */
static __noinline void gil_share_out(struct task_struct *task, struct gil_wait *w, __u64 begin,
				     __u64 end)
{
	__u32 host_pid = BPF_CORE_READ(task, tgid), host_tid = BPF_CORE_READ(task, pid);
	struct gil_history *history = gil_history_of(host_pid, w->gil);
	__u64 oldest;

	if (history && gil_change_at(history, history->n - 1)->ns > begin) {
		oldest = history->n;
		for (int i = 0; i < GIL_MAX_CHANGES; i++) {
			struct gil_change *change = gil_change_at(history, oldest + i);
			/* it itself is the next: that is not part of its wait any more, or too late
			 */
			__u64 own = is_same(change->holder.host_tid, host_tid);

			if (!(is_less(begin, change->ns) & is_less(change->ns, end) & ~own))
				continue;
			gil_holder_now(w)->ns += change->ns - begin;
			begin = change->ns;
			gil_wait_held_by(w, change->holder);
		}
	}
	gil_holder_now(w)->ns += end - begin;
}

#endif
