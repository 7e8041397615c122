/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which requests a thread has open, and which unix sockets it watches for that. */
#ifndef UNDERSPAN_REQUEST_THREADS_BPF_H
#define UNDERSPAN_REQUEST_THREADS_BPF_H

#include "request/connection.bpf.h"

/*
 * Requests ended by a thread that is not the reader. The reader subtracts this number from its open
 * requests.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64); /* task_key() of the reader */
	__type(value, __u64);
} request_released SEC(".maps");

__u64 request_released_n; /* entries, perhaps evicted since; 0 saves the look-up */

static __always_inline struct thread *request_current_thread(void)
{
	struct task_struct *task = current_task();
	struct thread *t = thread_find(task);

	if (t || BPF_CORE_READ(task, flags) & PF_EXITING)
		return t;
	return thread_create(task);
}

static __always_inline void request_thread_busy(__u32 tgid, int more)
{
	struct request_process *process = bpf_map_lookup_elem(&request_processes, &tgid);

	if (process)
		__sync_fetch_and_add(&process->busy, more);
}

static __always_inline __u32 request_level(__u32 open)
{
	__u32 level = 8;

	if (open <= 8)
		return open - 1;
	for (open /= 16; open && level < REQUEST_LEVELS - 1; open /= 2)
		level++;
	return level;
}

/* The maximum of the thread's open requests since `since_ns`, at least `least`, which is not 0. */
static __always_inline __u32 request_most_open(const struct request_sums *sums, __u64 since_ns,
					       __u32 least)
{
	if (sums->several_ns <= since_ns)
		return least;
	for (int i = 0; i < REQUEST_LEVELS; i++) {
		if (sums->open_ns[i] > since_ns && sums->open_n[i] > least)
			least = sums->open_n[i];
	}
	return least;
}

/*
 * request_released: requests in the lower half; in the upper half, how often the reader was taken
 * for no longer busy.
 */
#define REQUEST_RELEASED_BUSY (1ULL << 32)

/* The current thread has read a request. Returns how many are open. */
static __always_inline __u32 request_thread_opens(struct thread *t, __u64 now)
{
	__u64 key = bpf_get_current_task();
	__u64 *released = NULL;
	struct request_sums *sums = &t->request;
	__u32 level;
	int more;

	if (request_released_n)
		released = bpf_map_lookup_elem(&request_released, &key);
	if (released) {
		if (sums->open >= 2)
			request_settle(t, now);
		more = *released >> 32;
		sums->open -= (__u32)*released < sums->open ? (__u32)*released : sums->open;
		if (!bpf_map_delete_elem(&request_released, &key))
			__sync_fetch_and_add(&request_released_n, -1);
		if (!sums->open)
			more--;
		if (more)
			request_thread_busy(current_tgid(), more);
	}
	if (sums->open) {
		request_settle(t, now);
	} else {
		request_peers_forget(sums);
		sums->reads = sums->gifts = sums->settled_reads = 0;
	}
	sums->reads++;
	if (++sums->open == 1)
		return 1;
	level = request_level(sums->open) & (REQUEST_LEVELS - 1);
	sums->several_ns = sums->open_ns[level] = now;
	sums->open_n[level] = sums->open;
	return sums->open;
}

/* ---- unix sockets that a thread watches: see close.bpf.h ---- */

static __always_inline void request_unix_watch(struct thread *t, __u64 key, bool evict)
{
	struct request_watched *at = NULL, *watched = t->request.watched;

	for (int i = 0; i < REQUEST_WATCHED; i++) {
		if (watched[i].sk == key)
			return;
		if (!watched[i].sk)
			at = &watched[i];
	}
	if (!at && !evict)
		return;
	if (at)
		t->request.watches++;
	else
		at = watched;
	at->socket = (__u64)BPF_CORE_READ((struct sock *)key, sk_socket);
	at->sk = key;
}

static __always_inline void request_unix_unwatch(struct thread *t, __u64 key)
{
	struct request_watched *watched = t->request.watched;

	for (int i = 0; t->request.watches && i < REQUEST_WATCHED; i++) {
		if (watched[i].sk != key)
			continue;
		watched[i].sk = 0;
		t->request.watches--;
	}
}

/*
 * The end of a request, for the count of the thread with the key `reader`. `process`: the request's
 * if it is known; `t`: the present thread's record if it is known.
 */
static __always_inline void request_thread_closes(__u64 sk, struct request_connection *conn,
						  struct request_process *process, struct thread *t)
{
	__u64 key = conn->reader, *released, one = 1;

	if (!key)
		return;
	if (key != bpf_get_current_task()) {
		/* with one request at a time, the thread waits for the next one from now on */
		if (conn->model == REQUEST_MODEL_thread && conn->open_requests == 1) {
			one += REQUEST_RELEASED_BUSY;
			request_thread_busy(conn->header.host_pid, -1);
		}
		released = bpf_map_lookup_elem(&request_released, &key);
		if (released) {
			__sync_fetch_and_add(released, one);
			return;
		}
		__sync_fetch_and_add(&request_released_n, 1);
		bpf_map_update_elem(&request_released, &key, &one, BPF_ANY);
		return;
	}
	if (!t)
		t = thread_find(current_task());
	if (!t || !t->request.open)
		return;
	request_unix_unwatch(t, sk);
	if (t->request.open >= 2)
		request_settle(t, bpf_ktime_get_ns());
	if (--t->request.open)
		return;
	if (process && conn->header.host_pid == current_tgid())
		__sync_fetch_and_add(&process->busy, -1);
	else
		request_thread_busy(current_tgid(), -1);
}

#endif
