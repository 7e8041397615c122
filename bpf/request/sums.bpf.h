/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Per-thread sums of time by part, without thresholds and sampling: updated at context switches,
 * read as snapshots by the running thread. Time on a CPU is the remainder of the wall time.
 */
#ifndef UNDERSPAN_REQUEST_SUMS_BPF_H
#define UNDERSPAN_REQUEST_SUMS_BPF_H

#include "off_cpu/cause.bpf.h"
#include "python/gc_clock.bpf.h"
#include "request/locks.bpf.h"
#include "request/peer.bpf.h"
#include "request/process.bpf.h"
#include "request/throttle.bpf.h"
#include "sched/thread.bpf.h"

enum { REQUEST_POLLOUT = 4 };

enum { REQUEST_POLLS = 256 }; /* with a part: the sleep is a wait for several descriptors */

/* Global: the verifier explores it once, and what follows once and not for each part. */
__noinline int request_part_of(__u32 cause)
{
	switch (cause) {
	case OFF_CPU_CAUSE_preempt:
		return REQUEST_runq;
	case OFF_CPU_CAUSE_gil:
		return REQUEST_gil;
	case OFF_CPU_CAUSE_lock:
		return REQUEST_lock;
	case OFF_CPU_CAUSE_net:
		return REQUEST_net;
	case OFF_CPU_CAUSE_disk:
		return REQUEST_disk;
	case OFF_CPU_CAUSE_page_fault:
		return REQUEST_fault;
	case OFF_CPU_CAUSE_sleep:
		return REQUEST_sleep;
	case OFF_CPU_CAUSE_poll:
		return REQUEST_await | REQUEST_POLLS;
	case OFF_CPU_CAUSE_pipe:
		return REQUEST_pipe;
	case OFF_CPU_CAUSE_child:
		return REQUEST_child;
	}
	return REQUEST_other;
}

static __always_inline bool request_call_writes(long nr)
{
	return nr == NR_sendto || nr == NR_write || nr == NR_writev || nr == NR_sendmsg ||
	       nr == NR_sendfile || nr == NR_sendmmsg;
}

/*
 * A sleep on the descriptor of a socket: for the client of the thread's own request? Its socket
 * tells: a server may read from one descriptor of a connection, close it, and have another socket
 * under the same number.
 */
static __always_inline __u8 request_net_part(struct request_sums *sums, struct user_call *call)
{
	struct {
		__u32 fd;
		__u16 events, revents;
	} polled = { .fd = call->arg1 };
	bool writes = request_call_writes(call->nr);

	if (call->nr == NR_poll || call->nr == NR_ppoll) {
		if (bpf_probe_read_user(&polled, sizeof(polled), (void *)call->arg1))
			return REQUEST_net;
		writes = polled.events & REQUEST_POLLOUT;
	} else if (call->nr == NR_sendfile) {
		polled.fd = call->arg1;
	}
	if ((!sums->open && sums->given != REQUEST_GIVEN_BEGUN) ||
	    !request_sleeps_for_client(polled.fd))
		return REQUEST_net;
	return writes ? REQUEST_client_slow : REQUEST_client_wait;
}

/* A pool's thread begins to work for a loop's request, or does so no longer. */
static __always_inline void request_pool_works(struct request_process *process,
					       struct request_sums *sums, bool works)
{
	if (!process || sums->works == works)
		return;
	sums->works = works;
	__sync_fetch_and_add(&process->pool_works, works ? 1 : -1);
}

/*
 * A thread of a pool behind a loop leaves the CPU: see request_gave_work(). Asleep on a lock, the
 * thread may wait for work: the end of its work may have been missed.
 */
static __always_inline void request_pool_ran(struct task_struct *task, struct request_sums *sums,
					     __u64 now)
{
	__u32 tgid = task->tgid;
	struct request_process *process = bpf_map_lookup_elem(&request_processes, &tgid);

	if (!process)
		return;
	process->pool_ns = now;
	if (sums->part != REQUEST_lock)
		return;
	request_pool_works(process, sums, false);
	/* created by the loop: the lock may be the one of the pool's queue */
	if (!sums->given_lock)
		request_lock_is_own(tgid, sums->lock, task->pid, 0, now);
}

/* Has no thread of the process collected since the clock was read? */
static __always_inline bool request_gc_clock_known(const struct request_sums *sums,
						   const struct gc_slot *slot)
{
	return slot && !slot->running && sums->gc_known == slot->ended + 1;
}

/* The look-up takes a fifth of a microsecond from cold memory: only after a collection. */
static __always_inline void request_read_gc_clock(struct request_sums *sums, __u32 tgid, __u32 tid,
						  __u64 now)
{
	const struct gc_slot *slot = gc_slot_of(tgid);
	__u64 ended = slot ? slot->ended : 0;
	struct gc_clock *clock;

	if (request_gc_clock_known(sums, slot))
		return;
	sums->gc_known = slot && !slot->running ? ended + 1 : 0;
	clock = bpf_map_lookup_elem(&gc_clocks, &tgid);
	sums->gc_clock = clock ? gc_clock_of_siblings(clock, tid, now) : 0;
}

/*
 * The lock on which a pool's thread may wait for work; 0: a lock inside the GIL, which any thread
 * that drops the GIL takes for an instant.
 */
static __always_inline __u64 request_lock_of(const struct thread *t, const struct user_call *call)
{
	return call->arg1 - t->gil.gil < PYTHON_GIL_SIZE ? 0 : call->arg1;
}

/*
 * A sleep that waits for several descriptors: is it the handler's own (gRPC, psycopg, a client of
 * Kafka)? Of a thread that is no loop, and of a pool's thread at work, it is. Otherwise in another
 * epoll instance than without an open request, or where the thread waits for requests on a lock
 * (cheroot's, whose sockets have a timeout and do not block); or in select() or poll(), where a
 * loop that uses them sleeps without an open request, too: a coroutine may keep its loop from
 * epoll_wait().
 */
static __always_inline bool request_handler_polls(struct request_sums *sums,
						  const struct user_call *call)
{
	__u32 epoll = call->arg1 + 1;

	if (sums->open ? sums->blocks : sums->given == REQUEST_GIVEN_BEGUN)
		return true;
	if (sums->epolls) {
		if (!sums->open)
			sums->idle_epoll = epoll;
		return sums->idle_epoll ? sums->idle_epoll != epoll
					: sums->open && sums->idle_locks;
	}
	if (call->nr != NR_select && call->nr != NR_pselect6 && call->nr != NR_poll &&
	    call->nr != NR_ppoll)
		return false;
	if (!sums->open)
		sums->selects_idle = 1;
	return !sums->selects_idle;
}

/* The thread leaves the CPU for t->off.cause; the process's memory can be read. */
static __always_inline void request_switch_out(struct task_struct *task, struct thread *t,
					       struct user_call *call, __u64 now)
{
	struct request_sums *sums = &t->request;
	__u32 tgid = task->tgid, part;
	bool polls;

	part = request_part_of(off_cpu_cause_of(&t->off));
	sums->epolls = call->nr == NR_epoll_wait || call->nr == NR_epoll_pwait;
	if (part & REQUEST_POLLS && request_handler_polls(sums, call))
		part = REQUEST_other;
	sums->part = part;
	polls = part & REQUEST_POLLS;
	sums->polls = polls;
	if (polls) /* what a loop has read and not handed on, it hands on no more, or later */
		sums->settled_reads = sums->reads;
	sums->remote.known = 0;
	if (sums->part == REQUEST_net)
		sums->part = request_net_part(sums, call);
	if (sums->part == REQUEST_gil) {
		request_read_gc_clock(sums, tgid, task->pid, now);
	} else if (sums->part == REQUEST_lock) {
		sums->lock = request_lock_of(t, call);
		sums->by_reader = 0;
		if (sums->lock && !sums->open && sums->serves)
			sums->idle_locks = 1;
	} else if (sums->part == REQUEST_runq) {
		sums->throttled = request_throttled_ns(task);
	}
	if (sums->pooled)
		request_pool_ran(task, sums, now);
}

/* The part of a wait for the GIL in which a sibling thread collected garbage. */
static __always_inline __u64 request_gc_sibling(__u32 tgid, __u32 tid, struct request_sums *sums,
						__u64 ns, __u64 end)
{
	struct gc_clock *clock;
	__u64 collected;

	if (request_gc_clock_known(sums, gc_slot_of(tgid)))
		return 0;
	clock = bpf_map_lookup_elem(&gc_clocks, &tgid);
	if (!clock)
		return 0;
	collected = gc_clock_of_siblings(clock, tid, end) - sums->gc_clock;
	/* negative: the entry is new */
	return (__s64)collected < 0 ? 0 : collected < ns ? collected : ns;
}

/* A collection of the thread's own does not include the time off the CPU. */
static __always_inline void request_own_gc_slept(struct task_struct *task, struct thread *t,
						 __u64 ns)
{
	__u32 tgid = task->tgid;
	struct gc_clock *clock;

	if (!gc_may_run(tgid))
		return;
	clock = bpf_map_lookup_elem(&gc_clocks, &tgid);
	if (clock && clock->since_ns && clock->host_tid == (__u32)task->pid &&
	    clock->since_ns <= t->off_ns)
		clock->off_ns += ns;
}

static __always_inline void request_snapshot_at(struct thread *t, struct request_snapshot *to,
						__u64 now)
{
	struct request_sums *sums = &t->request;

	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++)
		to->parts[i] = sums->parts[i];
	for (int i = 0; sums->has_shared && i < REQUEST_THREAD_PART_MAX; i++)
		to->parts[i] -= i == REQUEST_await ? 0 : sums->shared[i];
	to->busy_ns = sums->busy_ns;
	to->at_ns = now;
}

/*
 * A thread without an open request wakes up from a lock: perhaps with a request of a different
 * reader. Keeps the first wake-ups after such reads; a thread that took work without a sleep may
 * sleep on locks of the handler, and is woken by others.
 */
static __noinline void request_perhaps_gets_work(__u32 tgid, __u32 tid, struct thread *t, __u64 end)
{
	struct request_process *process = bpf_map_lookup_elem(&request_processes, &tgid);
	struct request_snapshot *to = &t->request.woken[0];

	if (!process)
		return;
	if (t->request.given == REQUEST_GIVEN) {
		t->request.parts[REQUEST_gc_own] = gc_own_ns_of((__u64)tgid << 32 | tid);
		request_snapshot_at(t, &t->request.given_begin, end);
		if (!t->request.given_more)
			request_peers_forget(&t->request);
		t->request.given = REQUEST_GIVEN_BEGUN;
	} else if (t->request.given) {
		request_pool_works(process, &t->request, true);
	}
	if (!t->request.by_reader)
		return;
	if (to->at_ns && process->read_ns > to->at_ns)
		to = &t->request.woken[1];
	if (!to->at_ns && process->read_ns)
		request_snapshot_at(t, to, end);
}

/* A new thread runs for the first time: has a loop created it for work? */
static __noinline int request_first_runs(struct thread *t, __u64 now)
{
	if (t->on_ns || t->request.given != REQUEST_GIVEN)
		return 0;
	request_snapshot_at(t, &t->request.given_begin, now);
	t->request.given = REQUEST_GIVEN_BEGUN;
	return 0;
}

/* The present sleep has ended: was it a wait for several descriptors? */
static __always_inline void request_polled(struct request_sums *sums, __u64 end)
{
	if (sums->part != REQUEST_await)
		return;
	if (sums->polls)
		sums->polled_ns = end;
	if (sums->epolls)
		sums->epolled_ns = end;
}

/*
 * The thread is back on a CPU since `end`. Not inlined: called from two programs' paths. Returns
 * nothing of use.
 */
static __noinline int request_switch_in(struct task_struct *task, struct thread *t, __u64 end)
{
	struct request_sums *sums = &t->request;
	__u64 ns = end - t->off_ns, runq = 0, throttled = 0, sibling;
	__u32 part = sums->part;

	if (sums->closed_ns == t->off_ns)
		return 0;
	if (part == REQUEST_runq)
		runq = ns;
	else if (t->wake_ns)
		runq = end - (t->wake_ns > t->off_ns ? t->wake_ns : t->off_ns);
	ns -= runq;
	sums->switches++;
	if (runq >= REQUEST_THROTTLED_MIN_NS) {
		throttled = request_throttled_ns(task) - sums->throttled;
		if (throttled > runq)
			throttled = runq;
		sums->parts[REQUEST_throttled] += throttled;
	}
	sums->parts[REQUEST_runq] += runq - throttled;
	if (part == REQUEST_gil) {
		sibling = request_gc_sibling(task->tgid, task->pid, sums, ns, end - runq);
		sums->parts[REQUEST_gc_sibling] += sibling;
		sums->parts[REQUEST_gil] += ns - sibling;
	} else {
		if (part >= REQUEST_THREAD_PART_MAX)
			part = REQUEST_other;
		sums->parts[part] += ns;
		if (part == REQUEST_runq || part == REQUEST_fault || part == REQUEST_lock)
			request_own_gc_slept(task, t, ns + runq);
	}
	if (part == REQUEST_net)
		request_peer_waited(sums, ns);
	if (part == REQUEST_lock && !sums->open)
		request_perhaps_gets_work(task->tgid, task->pid, t, end);
	request_polled(sums, end);
	return 0;
}

/*
 * The current thread runs, but the switch in was not seen (gil_close_unseen()): the sleep ended at
 * the wake-up, or before the time on the CPU since. The next switch out does not add this sleep
 * again.
 */
static __always_inline void request_catch_up(struct thread *t, __u64 now)
{
	struct task_struct *task = current_task();
	struct request_sums *sums = &t->request;
	__u64 off_ns = t->off_ns, end, ns, sibling = 0;
	__u32 part = sums->part;

	if (!off_ns || sums->closed_ns == off_ns)
		return;
	end = now - (BPF_CORE_READ(task, se.sum_exec_runtime) - t->exec_ns);
	if (t->wake_ns > off_ns)
		end = t->wake_ns;
	if (end > now)
		end = now;
	ns = end > off_ns ? end - off_ns : 0;
	sums->closed_ns = off_ns;
	if (*(volatile __u64 *)&t->off_ns != off_ns) /* switched out and in since */
		return;
	if (part == REQUEST_gil) {
		sibling = request_gc_sibling(current_tgid(), current_tid(), sums, ns, end);
		sums->parts[REQUEST_gc_sibling] += sibling;
	}
	barrier_var(part); /* 5.10 loses the bounds of a spilled number */
	if (part >= REQUEST_THREAD_PART_MAX)
		part = REQUEST_other;
	sums->parts[part] += ns - sibling;
	if (part == REQUEST_net)
		request_current_waited(ns);
	sums->switches++;
	request_polled(sums, end);
}

/* Brings the sums of the current thread's shared time up to `now`. */
static __noinline int request_settle(struct thread *t, __u64 now)
{
	struct request_sums *sums = &t->request;
	__u64 more;

	request_catch_up(t, now);
	if (sums->open >= 2)
		sums->busy_ns += now - sums->settled_ns;
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++) {
		more = sums->parts[i] - sums->settled[i];
		sums->settled[i] = sums->parts[i];
		if (sums->open < 2)
			continue;
		if (i == REQUEST_await) {
			sums->busy_ns -= more;
		} else {
			sums->shared[i] += more;
			sums->has_shared = 1;
		}
	}
	sums->settled_ns = now;
	return 0;
}

/* The current thread's own collections: looked up only if a collection has ended since. */
static __always_inline void request_update_gc_own(struct request_sums *sums)
{
	const struct gc_slot *slot = gc_slot_of(current_tgid());
	__u64 ended = slot ? slot->ended : 0;

	if (ended == sums->gc_ended)
		return;
	sums->gc_ended = ended;
	sums->parts[REQUEST_gc_own] = gc_own_ns();
}

/* The current thread's sums; a context switch in between is noticed. */
static __noinline int request_snapshot_take(struct thread *t, struct request_snapshot *to)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 switches;

	request_catch_up(t, now);
	switches = t->request.switches;
	request_update_gc_own(&t->request);
	if (t->request.open >= 2)
		request_settle(t, now);
	request_snapshot_at(t, to, now);
	if (*(volatile __u32 *)&t->request.switches != switches) {
		now = bpf_ktime_get_ns();
		if (t->request.open >= 2)
			request_settle(t, now);
		request_snapshot_at(t, to, now);
	}
	return 0;
}

/* No request of the thread is open; its sums go on, since only differences count. */
static __always_inline void request_forget(struct request_sums *sums)
{
	sums->open = sums->reads = sums->gifts = sums->settled_reads = 0;
	sums->given = 0;
	sums->giver = sums->lock = 0;
	sums->answered.at_ns = sums->given_begin.at_ns = 0;
	for (int i = 0; i < REQUEST_IDLE_SNAPSHOTS; i++)
		sums->woken[i].at_ns = 0;
}

#endif
