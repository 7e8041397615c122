/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The history of each GIL's holders. A waiter learns the holder only when going to sleep, and the
 * GIL may change hands many times during the sleep. So the last changes of each GIL are kept, as
 * seen by all waiters and droppers. The dropper wakes one waiter, normally the next holder. If
 * another thread takes the GIL first, the woken waiter records that thread as holder before
 * sleeping again.
 */
#ifndef UNDERSPAN_GIL_WAIT_HOLDERS_BPF_H
#define UNDERSPAN_GIL_WAIT_HOLDERS_BPF_H

#include "lib/stack_cpu_limit.bpf.h"
#include "lib/task.bpf.h"
#include "sched/thread.bpf.h"

enum {
	GIL_MAX_CHANGES = 16, /* kept per GIL; a power of two */
	GIL_OTHER_HOLDERS = GIL_MAX_HOLDERS - 1,
};

struct gil_history_key {
	__u64 gil;
	__u32 host_pid;
	__u32 pad;
};

struct gil_change {
	__u64 ns; /* start of the holding */
	struct gil_thread_ids holder;
	__u64 check; /* gil_change_check(): two CPUs may write at the same time */
};

/* The Python stack of a holder, see gil_wait/stacks.bpf.h. */
struct gil_sample {
	__u64 ns; /* time of the walk */
	__u64 tstate, stack;
	__u64 check; /* XOR of the members above: two CPUs may write at the same time */
};

struct gil_history {
	__u64 n; /* number of changes so far; the newest GIL_MAX_CHANGES are kept */
	struct token_bucket stacks;
	struct gil_sample sample;
	struct gil_change changes[GIL_MAX_CHANGES];
};

/*
 * LRU: the end of an interpreter is not seen. Without history the whole sleep counts for its first
 * holder.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct gil_history_key);
	__type(value, struct gil_history);
} gil_histories SEC(".maps");

static const struct gil_history no_gil_history;

/* barrier_var() keeps the compiler from dropping the mask, which the verifier needs. */
static __always_inline struct gil_change *gil_change_at(struct gil_history *history, __u64 n)
{
	barrier_var(n);
	return &history->changes[n & (GIL_MAX_CHANGES - 1)];
}

static __always_inline __u64 gil_change_check(const struct gil_change *change)
{
	return change->ns ^ change->holder.ident ^
	       ((__u64)change->holder.tid << 32 | change->holder.host_tid);
}

static __always_inline struct gil_history *gil_history_of(__u32 host_pid, __u64 gil)
{
	struct gil_history_key key = { .gil = gil, .host_pid = host_pid };

	return bpf_map_lookup_elem(&gil_histories, &key);
}

/*
 * Records that `holder` has the GIL since `ns` at the latest, in `history`, if there is one. Most
 * callers hold the GIL's own mutex; two callers without the mutex may write the same slot, and one
 * change is lost.
 */
static __always_inline void gil_held_by(struct gil_history *history, __u32 host_pid, __u64 gil,
					__u64 ns, struct gil_thread_ids holder)
{
	struct gil_history_key key = { .gil = gil, .host_pid = host_pid };
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
	change->check = gil_change_check(change);
	history->n++;
}

/* ---- the holders of a wait ---- */

static __always_inline struct gil_holder *gil_holder_at(struct gil_wait *w, __u32 n)
{
	barrier_var(n);
	return &w->holders[n & (GIL_MAX_HOLDERS - 1)];
}

/*
 * Returns 1 or 0, for numbers below 2^63, without a jump. The verifier explores both sides of each
 * jump in every iteration of the nested loops below, and keeps the states in memory: with jumps the
 * loops were four fifths of the verifier's work for the program of a context switch, and half of
 * the agent's start.
 */
static __always_inline __u64 is_less(__u64 a, __u64 b)
{
	__u64 less = a - b;

	barrier_var(less); /* keeps the compiler from making a jump of the subtraction */
	return less >> 63;
}

static __always_inline __u64 is_same(__u32 a, __u32 b)
{
	return is_less(a ^ b, 1);
}

/*
 * The volatile read makes the index unknown to the verifier, which then explores the code below
 * once.
 */
static __always_inline struct gil_holder *gil_holder_now(struct gil_wait *w)
{
	return gil_holder_at(w, *(volatile __u8 *)&w->holder);
}

/*
 * Evicts the shortest holder, never [0], into the last slot, which sums up the evicted holders. The
 * new holder gets the free slot.
 */
static __always_inline void gil_evict_shortest(struct gil_wait *w)
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

/* Makes `ids` the wait's present holder. Not inlined: the callers have no BPF stack left. */
static __noinline void gil_wait_held_by(struct gil_wait *w, struct gil_thread_ids ids)
{
	struct gil_holder *holder;
	__u64 found = 0, index = 0;
	__u32 n;

	if (w->n_holders == 1 && !w->holders[0].tid) /* the first holder was unknown until now */
		w->n_holders = 0;
	n = *(volatile __u8 *)&w->n_holders;
	for (__u32 i = 0; i < GIL_MAX_HOLDERS; i++) {
		__u64 same = is_less(i, n) & is_same(w->holders[i].tid, ids.tid) & ~found;

		index |= i * same;
		found |= same;
	}
	w->holder = found ? index : n;
	if (found)
		return;
	if (n < GIL_MAX_HOLDERS)
		w->n_holders = n + 1;
	else
		gil_evict_shortest(w);
	holder = gil_holder_now(w);
	holder->tid = ids.tid;
	holder->host_tid = ids.host_tid;
	holder->ident = ids.ident;
	if (n) /* [0] keeps the time from before the holder was known */
		holder->ns = 0;
}

/* The last `n` changes, a constant. Returns the time up to which the sleep is distributed. */
static __always_inline __u64 gil_attribute_changes(struct gil_history *history, struct gil_wait *w,
						   __u32 n, __u32 host_tid, __u64 begin, __u64 end)
{
	__u64 oldest = history->n - n;

	for (__u32 i = 0; i < n; i++) {
		struct gil_change *change = gil_change_at(history, oldest + i);
		/* the waiter itself as holder: no part of the wait */
		__u64 own = is_same(change->holder.host_tid, host_tid);

		if (!(is_less(begin, change->ns) & is_less(change->ns, end) & ~own))
			continue;
		gil_holder_now(w)->ns += change->ns - begin;
		begin = change->ns;
		gil_wait_held_by(w, change->holder);
	}
	return begin;
}

/*
 * Distributes the sleep from `begin` to `end` among the holders of that time. Most sleeps see a
 * change or two.
 */
static __noinline void gil_attribute_sleep(struct gil_history *history, struct gil_wait *w,
					   __u32 host_tid, __u64 begin, __u64 end)
{
	enum { FEW = 3 };

	if (history && gil_change_at(history, history->n - 1)->ns > begin)
		begin = gil_change_at(history, history->n - FEW - 1)->ns <= begin
				? gil_attribute_changes(history, w, FEW, host_tid, begin, end)
				: gil_attribute_changes(history, w, GIL_MAX_CHANGES, host_tid,
							begin, end);
	gil_holder_now(w)->ns += end - begin;
}

#endif
