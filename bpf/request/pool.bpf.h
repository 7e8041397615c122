/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work that an event loop hands to a pool thread: the loop's thread wakes the pool thread from a
 * sleep on a lock, the pool thread works, and wakes the loop from epoll_wait() at the end. A
 * hand-off is linked to the request that the loop has read since its last sleep, if that is one
 * only, and if at least as many threads of the pool work as further requests are open: none of
 * these can be handed on now. Otherwise nothing is linked: pools with a limit may reorder requests.
 * Nothing is linked either if the loop's thread awaited anything else for the request, or ran
 * longer for it than the pool's thread: a coroutine that has a name resolved by the pool stays a
 * coroutine. Several works of one thread for the only open request are one: Django's handler for
 * ASGI hands on each call.
 *
 * A thread on its way to the next sleep takes work without being woken. Such hand-offs are not
 * seen; that the pool may have worked is, by threads of the pool that leave a CPU or wake the loop.
 */
#ifndef UNDERSPAN_REQUEST_POOL_BPF_H
#define UNDERSPAN_REQUEST_POOL_BPF_H

#include "request/context.bpf.h"
#include "request/work.bpf.h"

/*
 * Does the loop wake the pool's thread that has woken it, before it waits for anything else, with
 * each request handed on? Returns the thread's completed work, or NULL.
 */
static __always_inline struct request_work *request_replies(const struct request_sums *giver,
							    const struct task_struct *task,
							    const struct request_sums *to)
{
	__u64 giver_key = bpf_get_current_task(), key = task_key(task);
	struct request_work *work;

	if (to->given || to->giver != giver_key || giver->gifts < giver->reads)
		return NULL;
	work = bpf_map_lookup_elem(&request_works, &key);
	if (!work || work->giver != giver_key || !work->end_ns ||
	    work->loop_await_ns != giver->parts[REQUEST_await])
		return NULL;
	return work;
}

/*
 * Is request `n`, handed on first at `first_ns`, the only open one of the loop with the key
 * `giver_key`, and has the loop not begun to answer?
 */
static __always_inline bool request_awaits_pool(const struct request_sums *giver, __u64 giver_key,
						__u32 n, __u64 first_ns)
{
	const struct request_connection *conn;

	if (giver->open != 1)
		return false;
	conn = request_connection_of(giver->read_key);
	return conn && conn->worker == giver_key && conn->link == REQUEST_LINK_same &&
	       !conn->status && conn->nth == n && first_ns >= conn->read_ns;
}

/*
 * Does the loop hand on more work for the request of the thread's completed work, as Django's
 * handler for ASGI has each call of a request made by one thread? Otherwise the thread has asked
 * the loop to write and waits for the result, as twisted's WSGI does: on a different lock, and the
 * answer has begun.
 */
static __always_inline bool request_gives_more(const struct request_sums *giver,
					       const struct request_sums *to,
					       const struct request_work *work)
{
	if (to->given_lock && to->given_lock != to->lock)
		return false;
	return request_awaits_pool(giver, bpf_get_current_task(), work->n, work->handed.first_ns);
}

/* The same where the end of the work was not seen, since the loop was not asleep. */
static __always_inline bool request_gives_more_unended(const struct request_sums *giver,
						       const struct request_sums *to, __u64 key)
{
	const struct request_work *work = bpf_map_lookup_elem(&request_works, &key);

	return work && to->given == REQUEST_GIVEN_BEGUN && to->given_n &&
	       (to->given_own || giver->reads == 1) &&
	       work->handing.await_ns == giver->parts[REQUEST_await] &&
	       request_awaits_pool(giver, bpf_get_current_task(), to->given_n,
				   work->handing.first_ns);
}

/*
 * The loop `t` hands on more work to `to`. What the loop did meanwhile stays the loop's, the work
 * so far is the pool's.
 */
static __noinline int request_gives_on(struct thread *t, struct thread *to, __u64 key, __u64 now)
{
	struct request_work *work = bpf_map_lookup_elem(&request_works, &key);
	bool ended = !to->request.given;
	struct request_handed *handed;
	__u32 tgid = current_tgid();

	if (!work)
		return 0;
	if (!ended)
		request_work_ended(t, to, key, work, now);
	t->request.gifts++;
	/* not seen, the end may be none: a new thread sleeps on locks of its start, too */
	if (ended)
		to->request.given_lock = to->request.lock;
	to->request.given = REQUEST_GIVEN;
	to->request.given_more = 1;
	to->request.told = to->request.ended = 0;
	request_pool_works(bpf_map_lookup_elem(&request_processes, &tgid), &to->request, true);
	to->request.given_context = request_context_gives(t, key, now, true);
	handed = &work->handing;
	request_snapshot_take(t, &handed->at);
	handed->await_ns = handed->at.parts[REQUEST_await];
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++)
		handed->at.parts[i] -= work->begin.parts[i] - work->handed.at.parts[i];
	handed->at.busy_ns -= work->begin.busy_ns - work->handed.at.busy_ns;
	handed->at.at_ns -= work->begin.at_ns - work->handed.at.at_ns;
	handed->first_ns = work->handed.first_ns;
	handed->first_await_ns = work->handed.first_await_ns;
	handed->worked_ns = work->handed.worked_ns + request_worked_until(work) -
			    work->begin.at_ns - work->ready_ns;
	if (!work->header.start_ns)
		work->end_ns = 0;
	return 0;
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
		if (!candidates)
			giver->spare_ns = now;
		return 0;
	}
	conn->receiver = receiver;
	return conn->nth;
}

/* The current thread `t`, a loop with requests, wakes `task` from a sleep on a lock. */
static __always_inline void request_gives(struct thread *t, struct task_struct *task,
					  struct thread *receiver, __u64 now)
{
	struct request_sums *to = &receiver->request;
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
	if (to->given && to->giver == giver_key && to->given_lock && to->given_lock != to->lock) {
		giver->gifts++;
		return;
	}
	if (to->given && to->giver == giver_key && request_gives_more_unended(giver, to, key)) {
		request_gives_on(t, receiver, key, now);
		return;
	}
	/* the first work of a thread that the loop created: any lock may be inside */
	if (to->given && to->giver == giver_key && to->given_lock != to->lock) {
		giver->gifts++;
		return;
	}
	process = bpf_map_lookup_elem(&request_processes, &tgid);
	giver->gifts++;
	to->giver = giver_key;
	to->given_lock = to->lock;
	to->given_own = request_lock_is_own(tgid, to->lock, task->pid, receiver->off_ns, now);
	to->given_n = request_given_n(giver, process, key, now);
	to->given = REQUEST_GIVEN;
	request_pool_works(process, to, true);
	to->given_more = to->told = to->ended = 0;
	to->wake_sk = giver->wake_sk;
	to->given_context = request_context_gives(t, key, now, false);
	work = to->given_n || to->given_context ? request_work_entry(key) : NULL;
	if (!work)
		return;
	request_snapshot_take(t, &work->handing.at);
	work->handing.first_ns = work->handing.at.at_ns;
	work->handing.await_ns = work->handing.at.parts[REQUEST_await];
	work->handing.first_await_ns = work->handing.await_ns;
	work->handing.worked_ns = 0;
}

/*
 * The current thread, a pool's, wakes the loop once more from the first sleep since its work's end:
 * has it worked on? It has told the loop of a part, as WSGI behind ASGI does, or got more work
 * before it slept.
 */
static __always_inline bool request_works_on(const struct request_sums *sums,
					     const struct request_sums *loop, __u64 loop_key)
{
	__u64 key = bpf_get_current_task();
	const struct request_work *work;

	if (sums->given || loop->open != 1)
		return false;
	work = bpf_map_lookup_elem(&request_works, &key);
	return work && work->giver == loop_key && work->end_ns &&
	       work->loop_await_ns == loop->parts[REQUEST_await] &&
	       request_awaits_pool(loop, loop_key, work->n, work->handed.first_ns);
}

/* In the waker: from now on the thread waits for a CPU. */
static __always_inline void request_woken(struct task_struct *task, struct thread *t, __u64 now)
{
	struct request_sums *sums = &t->request;
	bool lock = sums->part == REQUEST_lock && sums->lock, loop = sums->polls && sums->open;
	struct request_work *work;
	struct thread *waker;
	bool one;

	if (sums->part != REQUEST_runq)
		sums->throttled = request_throttled_ns(task);
	if ((!lock && !loop) || !t->off_ns || current_tgid() != (__u32)task->tgid)
		return;
	waker = thread_find(current_task());
	if (!waker)
		return;
	if (lock && waker->request.open) {
		one = waker->request.serves == REQUEST_SERVES_ONE;
		work = one ? NULL : request_replies(&waker->request, task, sums);
		if (work && !request_gives_more(&waker->request, sums, work))
			return;
		if (work) {
			request_gives_on(waker, t, task_key(task), now);
			return;
		}
		waker->request.woke_ns = now;
		sums->by_reader = waker->request.read_ns > waker->request.polled_ns;
		if (!one)
			request_gives(waker, task, t, now);
	} else if (loop && waker->request.giver == task_key(task) &&
		   (waker->request.given == REQUEST_GIVEN_BEGUN ||
		    request_works_on(&waker->request, sums, task_key(task)))) {
		request_work_ends(waker, t, (__u64)task->tgid << 32 | (__u32)task->pid, now);
	} else if (loop && request_wakes_loop(t)) {
		sums->woke_ns = now; /* the end of work whose hand-off was not seen */
	}
}

/*
 * The current thread, a loop with requests, creates `child`, perhaps to hand a request to it: a
 * pool that grows, or Django's thread for each request. The work begins when the thread first runs.
 */
static __always_inline void request_creates(struct task_struct *child)
{
	struct thread *creator = thread_find(current_task()), *t;
	__u64 now;

	if (!creator || !creator->request.open)
		return;
	now = bpf_ktime_get_ns();
	creator->request.woke_ns = now;
	if (creator->request.serves == REQUEST_SERVES_ONE)
		return;
	t = thread_create(child);
	if (t)
		request_gives(creator, child, t, now);
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
	    work->handed.first_ns < conn->read_ns || work->begin.at_ns < work->handed.at.at_ns)
		return NULL;
	/* what looked like the end was a part: the task may be gone, and its context another's */
	if (work->more_ns && sums->reads > 1)
		return NULL;
	/* the answer follows the work's end before the loop waits again */
	if (work->loop_await_ns != sums->parts[REQUEST_await])
		return NULL;
	if (given.given_ns) /* once only */
		return work->context == context && given.before_ns < conn->read_ns ? work : NULL;
	/* a task answers a request among several, and has handed nothing on */
	if (sums->tasks_answer && context && sums->reads > 1)
		return NULL;
	/*
	 * An older request's second hand-off may have been taken for this one's: this one's came
	 * later, when each request seemed to be handed on.
	 */
	if (sums->reads > 1 && sums->spare_ns > work->handed.first_ns)
		return NULL;
	/* the request may have been handed on again */
	if (work->n != conn->nth || sums->unsure_ns > work->end_ns ||
	    (sums->reads == 1 && sums->woke_ns > work->end_ns))
		return NULL;
	return work;
}

#endif
