/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work of a pool's thread for a request, from the hand-off by the event loop to the end: the thread
 * wakes the loop from epoll_wait(). Which request's: pool.bpf.h.
 */
#ifndef UNDERSPAN_REQUEST_WORK_BPF_H
#define UNDERSPAN_REQUEST_WORK_BPF_H

#include "request/connection.bpf.h"

/* A hand-off, of work or of more work for the same request. */
struct request_handed {
	/*
	 * Of the loop's thread, when handing the work on. Earlier work for the request is folded
	 * in: the difference to the request's begin has the earlier work's parts.
	 */
	struct request_snapshot at;
	__u64 first_ns;	      /* the request's first hand-off */
	__u64 first_await_ns; /* `await` of the loop's thread then */
	__u64 await_ns;	      /* and at this hand-off */
	__u64 worked_ns; /* the earlier work, less the time in which its thread could not run */
};

/* The last completed work of a pool thread, and the present hand-off. */
struct request_work {
	struct request_handed handed, handing;
	__u64 giver;   /* task_key() of the loop's thread */
	__u64 context; /* in which it was handed on, see context.bpf.h; 0: unknown */
	__u64 end_ns;
	/*
	 * The loop's sums at the work's end less the sums of the work, dated at the work's begin.
	 * The difference to the loop's sums at the answer's end is the work plus the time until the
	 * answer.
	 */
	struct request_snapshot begin;
	struct event_header header; /* of the pool's thread */
	__u64 loop_await_ns;	    /* `await` of the loop's thread at the work's end */
	__u64 loop_ready_ns;	    /* the same of request_ready_ns() */
	__u64 ready_ns;		    /* of the work, the time in which its thread could not run */
	__u64 thread;		    /* task_key() */
	__u64 end_ready_ns;	    /* request_ready_ns() of the thread at the work's end */
	__u64 slept_ns;		    /* the thread slept for the first time since the end; 0: not */
	__u64 more_ns;		    /* the thread has worked on behind the end until then; 0: not */
	struct request_peer peer;   /* with most of the work's `net` */
	__u32 n;		    /* the request: see request_connection.nth; 0: unknown */
	__u32 pad;
};

/* Filled under a run queue's lock, therefore preallocated. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64); /* task_key() of the pool's thread */
	__type(value, struct request_work);
} request_works SEC(".maps");

static const struct request_work empty_request_work;

/* Between the end of a work and the sleep for the next one. */
enum { REQUEST_REST_OF_WORK_NS = 1000000 };

enum { REQUEST_WAKE_BY_NO_SOCKET = 1 }; /* request_sums.wake_sk: by an eventfd or a pipe */

/* Identity of the current thread, read again once a second, since a name may change. */
static __always_inline void request_header_set(struct thread *t, struct event_header *ret,
					       __u64 now)
{
	enum { HEADER_KEEP_NS = 1000000000 };
	struct event_header *known = &t->request.header;

	if (now - known->start_ns > HEADER_KEEP_NS) {
		header_set_current(known);
		known->start_ns = now;
	}
	*ret = *known;
}

static __always_inline void request_pool_thread_ends(const struct task_struct *task,
						     struct thread *t)
{
	__u64 key = task_key(task);
	__u32 tgid = task->tgid;

	bpf_map_delete_elem(&request_works, &key);
	if (t->request.given_lock)
		request_lock_forget(tgid, t->request.given_lock, task->pid);
	request_pool_works(bpf_map_lookup_elem(&request_processes, &tgid), &t->request, false);
}

/* The time in which a thread wanted to run and could not, by its sums or a snapshot. */
static __always_inline __u64 request_ready_ns(const __u64 parts[REQUEST_THREAD_PART_MAX])
{
	return parts[REQUEST_runq] + parts[REQUEST_throttled] + parts[REQUEST_gil] +
	       parts[REQUEST_gc_sibling];
}

/* A pool's thread is no loop, and waited for several descriptors: for the handler. */
static __always_inline void request_work_polled(struct request_work *work, __u64 ns)
{
	work->begin.parts[REQUEST_await] += ns;
	work->begin.parts[REQUEST_other] -= ns;
}

/* The entry of the pool's thread with the key `key`. NULL: no room. */
static __always_inline struct request_work *request_work_entry(__u64 key)
{
	bpf_map_update_elem(&request_works, &key, &empty_request_work, BPF_NOEXIST);
	return bpf_map_lookup_elem(&request_works, &key);
}

/* A snapshot at `now` of a thread asleep in epoll_wait(): part `i`. */
static __always_inline __u64 request_asleep_part(const struct thread *t, __u32 i, __u64 now)
{
	const struct request_sums *sums = &t->request;

	if (i == REQUEST_await)
		return sums->parts[i] + (now - t->off_ns);
	return (sums->open >= 2 ? sums->settled[i] : sums->parts[i]) - sums->shared[i];
}

static __always_inline __u64 request_asleep_busy(const struct thread *t, __u64 now)
{
	const struct request_sums *sums = &t->request;
	__u64 awaited = sums->parts[REQUEST_await] - sums->settled[REQUEST_await];

	if (sums->open < 2)
		return sums->busy_ns;
	return sums->busy_ns + (now - sums->settled_ns) - awaited - (now - t->off_ns);
}

/*
 * Does the current thread wake a loop by a system call? Otherwise an interrupt on this CPU does:
 * the loop's timer, or bytes for the loop. Pools wake loops by an eventfd, a pipe or a pair of unix
 * sockets.
 */
static __noinline bool request_wakes_loop(struct thread *loop)
{
	struct user_call call;
	struct sock *sk;

	task_user_call(current_task(), &call);
	if (call.nr != NR_write && call.nr != NR_sendto)
		return false;
	sk = fd_to_sock(call.arg1);
	if (sk && BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
		return false;
	loop->request.wake_sk = sk ? (__u64)sk : REQUEST_WAKE_BY_NO_SOCKET;
	return true;
}

/* The current thread, a pool thread, has completed its work and wakes the loop's thread. */
static __noinline int request_work_ends(struct thread *t, struct thread *loop, __u64 loop_thread,
					__u64 now)
{
	struct request_snapshot *begin = &t->request.given_begin;
	__u64 key = bpf_get_current_task(), part;
	__u32 tgid = current_tgid();
	struct request_work *work;

	if (!request_wakes_loop(loop))
		return 0;
	t->request.given = 0;
	request_pool_works(bpf_map_lookup_elem(&request_processes, &tgid), &t->request, false);
	request_catch_up(t, now);
	t->request.parts[REQUEST_gc_own] = gc_own_ns();
	loop->request.parts[REQUEST_gc_own] = gc_own_ns_of(loop_thread);
	work = request_work_entry(key);
	if (!work)
		return 0;
	work->end_ns = 0;
	work->handed = work->handing;
	work->giver = t->request.giver;
	work->n = t->request.given_n;
	work->context = t->request.given_context;
	/*
	 * A part of the work, or all of it and then another request's, taken without a sleep; or
	 * another's alone, with a queue of several threads.
	 */
	if ((t->request.told || !t->request.given_own) && loop->request.reads > 1)
		work->n = work->context = 0;
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++) {
		part = t->request.parts[i] - (i == REQUEST_await ? 0 : t->request.shared[i]);
		work->begin.parts[i] = request_asleep_part(loop, i, now) - (part - begin->parts[i]);
	}
	request_work_polled(work, t->request.parts[REQUEST_await] - begin->parts[REQUEST_await]);
	work->loop_await_ns = request_asleep_part(loop, REQUEST_await, now);
	work->loop_ready_ns = request_ready_ns(loop->request.parts);
	work->ready_ns = request_ready_ns(t->request.parts) - request_ready_ns(t->request.shared) -
			 request_ready_ns(begin->parts);
	work->begin.busy_ns = request_asleep_busy(loop, now);
	work->begin.at_ns = begin->at_ns;
	work->thread = key;
	work->slept_ns = work->more_ns = 0;
	work->end_ready_ns = request_ready_ns(t->request.parts);
	t->request.wake_sk = loop->request.wake_sk;
	t->request.ended = t->request.wake_sk == REQUEST_WAKE_BY_NO_SOCKET ? REQUEST_ENDED_AWAKE
									   : REQUEST_ENDED_WRITES;
	loop->request.woke_ns = now; /* not the end of a request that was linked before */
	work->peer = *request_peer_most(&t->request);
	request_header_set(t, &work->header, now);
	work->end_ns = now;
	return 0;
}

/* The thread with the key `key`, a pool's, has worked on behind the end of its work. */
static __noinline int request_works_more(__u64 key, __u64 now)
{
	struct request_work *work = bpf_map_lookup_elem(&request_works, &key);

	if (work)
		work->more_ns = now;
	return 0;
}

/*
 * The current thread has written to the socket `sk`. A pool's thread wakes the loop so, and has
 * ended its work if the loop was asleep: see request_woken(). If it was not, the thread may go on
 * with the work of another request; and after the end of its work, it has told of more.
 */
static __always_inline void request_tells_loop(__u64 sk)
{
	struct thread *t = thread_find(current_task());

	if (!t || (t->request.wake_sk && t->request.wake_sk != sk))
		return;
	if (t->request.given == REQUEST_GIVEN_BEGUN)
		t->request.told = 1;
	else if (t->request.ended == REQUEST_ENDED_WRITES)
		t->request.ended = REQUEST_ENDED_AWAKE;
	else if (t->request.pooled && !t->request.given)
		request_works_more(bpf_get_current_task(), bpf_ktime_get_ns());
}

/*
 * The current thread, a pool's, leaves the CPU after the end of its work: has it worked on? Global:
 * the verifier explores it once.
 */
__noinline int request_pool_rests(__u64 now)
{
	struct thread *t = thread_find(current_task());
	__u64 key = bpf_get_current_task(), ready;
	struct request_work *work;
	struct request_sums *sums;
	__u32 part;

	if (!t)
		return 0;
	sums = &t->request;
	part = sums->part;
	if (part == REQUEST_runq || part == REQUEST_gil || part == REQUEST_fault ||
	    (part == REQUEST_lock && !sums->lock))
		return 0;
	sums->ended = 0;
	work = bpf_map_lookup_elem(&request_works, &key);
	if (!work)
		return 0;
	work->slept_ns = now;
	ready = request_ready_ns(sums->parts) - work->end_ready_ns;
	if (part != REQUEST_lock || (__s64)(now - work->end_ns - ready) > REQUEST_REST_OF_WORK_NS)
		work->more_ns = now;
	return 0;
}

/* An end that was not seen was the begin of the thread's sleep: the loop may have run since. */
static __always_inline __u64 request_worked_until(const struct request_work *work)
{
	return work->slept_ns && work->slept_ns < work->end_ns ? work->slept_ns : work->end_ns;
}

/*
 * May the thread of the linked work have worked for the request since? Known if it has not, and has
 * gone to sleep, or is about to.
 */
static __always_inline bool request_work_goes_on(__u64 thread, __u64 linked_ns, __u64 now)
{
	const struct request_work *work = bpf_map_lookup_elem(&request_works, &thread);

	if (!work || work->end_ns > linked_ns || work->more_ns)
		return true;
	return !work->slept_ns && now - work->end_ns > 2 * REQUEST_REST_OF_WORK_NS;
}

/*
 * The thread `to`, asleep since, has completed work although the end was not seen. An answer that
 * the loop has composed, and writes later as uvloop does, is linked to this work if the thread is
 * known.
 */
static __always_inline void request_work_ended(struct thread *t, struct thread *to, __u64 thread,
					       struct request_work *work, __u64 now)
{
	struct request_sums *sums = &to->request;
	__u64 part;

	work->handed = work->handing;
	work->thread = thread;
	work->slept_ns = to->off_ns;
	work->more_ns = 0;
	work->giver = sums->giver;
	work->n = sums->given_n;
	work->context = sums->given_context;
	work->header = sums->header;
	work->peer = *request_peer_most(sums);
	work->loop_await_ns = work->handing.await_ns;
	work->loop_ready_ns = request_ready_ns(t->request.parts);
	request_snapshot_take(t, &work->begin);
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++) {
		part = sums->parts[i] - (i == REQUEST_await ? 0 : sums->shared[i]);
		work->begin.parts[i] -= part - sums->given_begin.parts[i];
	}
	request_work_polled(work,
			    sums->parts[REQUEST_await] - sums->given_begin.parts[REQUEST_await]);
	work->begin.at_ns = sums->given_begin.at_ns;
	work->ready_ns = request_ready_ns(sums->parts) - request_ready_ns(sums->shared) -
			 request_ready_ns(sums->given_begin.parts);
	work->end_ns = now;
}

#endif
