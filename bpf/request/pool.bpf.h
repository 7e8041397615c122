/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work that an event loop hands to a pool thread: the loop's thread wakes the pool thread from a
 * sleep on a lock, the pool thread works, and wakes the loop from epoll_wait() at the end. A
 * hand-off is linked to the request that the loop has read since its last sleep, if that is one
 * only, and if at least as many threads of the pool work as further requests are open: none of
 * these can be handed on now. Otherwise nothing is linked: pools with a limit may reorder requests.
 * Nothing is linked either if the loop's thread awaited anything else for the request, or ran
 * longer for it than the pool's thread: a coroutine that has a name resolved by the pool stays a
 * coroutine.
 *
 * A thread on its way to the next sleep takes work without being woken, and a new thread has none
 * to be woken from. Such hand-offs are not seen; that the pool may have worked is, by threads of
 * the pool that leave a CPU or wake the loop, and by their creation.
 */
#ifndef UNDERSPAN_REQUEST_POOL_BPF_H
#define UNDERSPAN_REQUEST_POOL_BPF_H

#include "request/connection.bpf.h"
#include "request/context.bpf.h"

/* The last completed work of a pool thread, and the present hand-off. */
struct request_work {
	struct request_snapshot handed,
		handing; /* of the loop's thread, when handing the work on */
	__u64 giver;	 /* task_key() of the loop's thread */
	__u64 context;	 /* in which it was handed on, see context.bpf.h; 0: unknown */
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
	request_pool_works(bpf_map_lookup_elem(&request_processes, &tgid), &t->request, false);
}

/* The time in which a thread wanted to run and could not, by its sums or a snapshot. */
static __always_inline __u64 request_ready_ns(const __u64 parts[REQUEST_THREAD_PART_MAX])
{
	return parts[REQUEST_runq] + parts[REQUEST_throttled] + parts[REQUEST_gil] +
	       parts[REQUEST_gc_sibling];
}

/* The entry of the pool's thread with the key `key`. NULL: no room. */
static __always_inline struct request_work *request_work_entry(__u64 key)
{
	bpf_map_update_elem(&request_works, &key, &empty_request_work, BPF_NOEXIST);
	return bpf_map_lookup_elem(&request_works, &key);
}

/*
 * Does the loop answer the pool's thread that has woken it, before it waits for anything else? Each
 * request has been handed on: the thread has asked the loop to write and waits for the result, as
 * twisted's WSGI does, and gets no further work.
 */
static __always_inline bool request_replies(const struct request_sums *giver,
					    const struct task_struct *task,
					    const struct request_sums *to)
{
	__u64 giver_key = bpf_get_current_task(), key = task_key(task);
	const struct request_work *work;

	if (to->given || to->giver != giver_key || giver->gifts < giver->reads)
		return false;
	work = bpf_map_lookup_elem(&request_works, &key);
	return work && work->giver == giver_key && work->end_ns &&
	       work->loop_await_ns == giver->parts[REQUEST_await];
}

/*
 * The loop hands work on to `receiver`. Returns the request's `nth`, 0 for unknown. Later hand-offs
 * are not of a request read until now: of two in the same moment none is known.
 */
static __always_inline __u32 request_given_n(struct request_sums *giver,
					     const struct request_process *process, __u64 receiver,
					     __u64 now)
{
	struct request_connection *conn;
	__u32 candidates = giver->reads - giver->settled_reads;
	__s32 others = giver->open - 1;

	giver->settled_reads = giver->reads;
	conn = request_connection_of(giver->read_key);
	if (candidates != 1 || !process || others > (__s32)process->pool_works || !conn ||
	    conn->nth != giver->reads) {
		giver->unsure_ns = now;
		return 0;
	}
	conn->receiver = receiver;
	return conn->nth;
}

/* The current thread `t`, a loop with requests, wakes `task` from a sleep on a lock. */
static __always_inline void request_gives(struct thread *t, struct task_struct *task,
					  struct request_sums *to, __u64 now)
{
	__u64 giver_key = bpf_get_current_task(), key = task_key(task);
	__u32 tgid = task->tgid;
	struct request_process *process;
	struct request_sums *giver = &t->request;
	struct request_work *work;

	if (to->open)
		return;
	to->pooled = 1;
	/*
	 * A lock inside the work, different from the lock on which the thread waits for work. Or
	 * the other way round, if an answer's wake-up was taken for a hand-off: counted, so that
	 * request_replies() knows the next one.
	 */
	if (to->given && to->giver == giver_key && to->given_lock != to->lock) {
		giver->gifts++;
		return;
	}
	process = bpf_map_lookup_elem(&request_processes, &tgid);
	giver->gifts++;
	to->giver = giver_key;
	to->given_lock = to->lock;
	to->given_n = request_given_n(giver, process, key, now);
	to->given = REQUEST_GIVEN;
	request_pool_works(process, to, true);
	to->given_context = request_context_gives(t, key, now);
	work = to->given_n || to->given_context ? request_work_entry(key) : NULL;
	if (work)
		request_snapshot_take(t, &work->handing);
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
static __noinline bool request_wakes_loop(void)
{
	struct user_call call;
	struct sock *sk;

	task_user_call(current_task(), &call);
	if (call.nr != NR_write && call.nr != NR_sendto)
		return false;
	sk = fd_to_sock(call.arg1);
	return !sk || BPF_CORE_READ(sk, __sk_common.skc_family) == AF_UNIX;
}

/* The current thread, a pool thread, has completed its work and wakes the loop's thread. */
static __noinline int request_work_ends(struct thread *t, struct thread *loop, __u64 loop_thread,
					__u64 now)
{
	struct request_snapshot *begin = &t->request.given_begin;
	__u64 key = bpf_get_current_task(), part;
	__u32 tgid = current_tgid();
	struct request_work *work;

	if (!request_wakes_loop())
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
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++) {
		part = t->request.parts[i] - (i == REQUEST_await ? 0 : t->request.shared[i]);
		work->begin.parts[i] = request_asleep_part(loop, i, now) - (part - begin->parts[i]);
	}
	work->loop_await_ns = request_asleep_part(loop, REQUEST_await, now);
	work->loop_ready_ns = request_ready_ns(loop->request.parts);
	work->ready_ns = request_ready_ns(t->request.parts) - request_ready_ns(t->request.shared) -
			 request_ready_ns(begin->parts);
	work->begin.busy_ns = request_asleep_busy(loop, now);
	work->begin.at_ns = begin->at_ns;
	work->peer = *request_peer_most(&t->request);
	request_header_set(t, &work->header, now);
	work->end_ns = now;
	return 0;
}

/* In the waker: from now on the thread waits for a CPU. */
static __always_inline void request_woken(struct task_struct *task, struct thread *t, __u64 now)
{
	struct request_sums *sums = &t->request;
	bool lock = sums->part == REQUEST_lock && sums->lock, loop = sums->polls && sums->open;
	struct thread *waker;

	if (sums->part != REQUEST_runq)
		sums->throttled = request_throttled_ns(task);
	if ((!lock && !loop) || !t->off_ns || current_tgid() != (__u32)task->tgid)
		return;
	waker = thread_find(current_task());
	if (!waker)
		return;
	if (lock && waker->request.open) {
		if (request_replies(&waker->request, task, sums))
			return;
		waker->request.woke_ns = now;
		sums->by_reader = waker->request.read_ns > waker->request.polled_ns;
		request_gives(waker, task, sums, now);
	} else if (loop && waker->request.given == REQUEST_GIVEN_BEGUN &&
		   waker->request.giver == task_key(task)) {
		request_work_ends(waker, t, (__u64)task->tgid << 32 | (__u32)task->pid, now);
	} else if (loop && request_wakes_loop()) {
		sums->woke_ns = now; /* the end of work whose hand-off was not seen */
	}
}

/* The current thread, a loop with requests, creates `child`, perhaps to hand a request to it. */
static __always_inline void request_creates(struct task_struct *child)
{
	struct thread *creator = thread_find(current_task()), *t;

	if (!creator || !creator->request.open)
		return;
	creator->request.woke_ns = bpf_ktime_get_ns();
	t = thread_create(child);
	if (t)
		t->request.pooled = 1;
}

/* The current thread `t`, a loop, begins an answer: was the request a pool's work? */
static __always_inline struct request_work *request_work_of(struct thread *t,
							    const struct request_connection *conn)
{
	const struct request_sums *sums = &t->request;
	struct request_context_work given = { .receiver = conn->receiver };
	__u64 context = request_context_answers(t, conn->read_ns, &given);
	struct request_work *work = bpf_map_lookup_elem(&request_works, &given.receiver);

	if (!work || work->giver != bpf_get_current_task() || !work->end_ns ||
	    work->handed.at_ns < conn->read_ns || work->begin.at_ns < work->handed.at_ns)
		return NULL;
	/* the answer follows the work's end before the loop waits again */
	if (work->loop_await_ns != sums->parts[REQUEST_await])
		return NULL;
	if (given.given_ns) /* once only */
		return work->context == context && given.before_ns < conn->read_ns ? work : NULL;
	/* a task answers a request among several, and has handed nothing on */
	if (sums->tasks_answer && context && sums->reads > 1)
		return NULL;
	/* the request may have been handed on again */
	if (work->n != conn->nth || sums->unsure_ns > work->end_ns ||
	    (sums->reads == 1 && sums->woke_ns > work->end_ns))
		return NULL;
	return work;
}

#endif
