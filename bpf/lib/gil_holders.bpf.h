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
 * Too many for one row: the one that had it shortest joins those who share the last place, but
 * not the first, who had it when the wait began. Returns the place that is free now.
 */
static __always_inline __u32 gil_join_shortest(struct gil_wait *w)
{
	struct gil_holder *others = gil_holder_at(w, GIL_OTHER_HOLDERS);
	__u32 shortest = 1;

	for (__u32 i = 2; i < GIL_OTHER_HOLDERS; i++) {
		if (w->holders[i].ns < gil_holder_at(w, shortest)->ns)
			shortest = i;
	}
	others->tid = others->host_tid = 0;
	others->ident = 0;
	others->ns += gil_holder_at(w, shortest)->ns;
	return shortest;
}

/* From now on it is the wait's holder. */
static __always_inline void gil_wait_held_by(struct gil_wait *w, struct gil_thread_ids ids)
{
	struct gil_holder *holder;
	__u32 n = w->n_holders;

	if (n == 1 && !w->holders[0].tid) /* nobody had seen it before */
		n = 0;
	for (__u32 i = 0; i < GIL_MAX_HOLDERS; i++) {
		if (i < n && w->holders[i].tid == ids.tid) {
			w->holder = i;
			return;
		}
	}
	if (n < GIL_MAX_HOLDERS)
		w->n_holders = n + 1;
	else
		n = gil_join_shortest(w);
	w->holder = n;
	holder = gil_holder_at(w, n);
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
			if (change->ns <= begin || change->ns >= end ||
			    change->holder.host_tid == host_tid)
				continue;
			gil_holder_at(w, w->holder)->ns += change->ns - begin;
			begin = change->ns;
			gil_wait_held_by(w, change->holder);
		}
	}
	gil_holder_at(w, w->holder)->ns += end - begin;
}

#endif
