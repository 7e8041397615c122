/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Waits for the GIL, derived from scheduler events. take_gil() sleeps in pthread_cond_timedwait()
 * on gil->cond. With glibc this is futex(FUTEX_WAIT_BITSET) on a word inside the condition
 * variable, and no other FUTEX_WAIT_BITSET uses the word. The sleep times out after 5 ms, and
 * another thread may take the GIL first: gil->switch_number tells whether two sleeps belong to the
 * same wait. The thread that wakes the sleeper is the dropper.
 *
 * The locks of the GIL's struct are held for an instant, but the owner may be preempted. So a sleep
 * on such a lock inside take_gil() belongs to the wait, and so does time in the run queue before
 * take_gil() returns.
 */
#ifndef UNDERSPAN_GIL_WAIT_WAIT_BPF_H
#define UNDERSPAN_GIL_WAIT_WAIT_BPF_H

#include "gil_wait/holders.bpf.h"
#include "gil_wait/report.bpf.h"
#include "gil_wait/gil.bpf.h"
#include "sched/thread.bpf.h"

/* take_gil() retries within microseconds: a longer gap on a CPU separates two waits. */
#define SAME_WAIT_GAP_NS 100000ULL
/* From waking up in take_gil() to finding the GIL taken. */
#define LOST_RACE_GAP_NS 8000ULL
/* A forced drop_gil() is followed by take_gil() at once. */
#define FORCED_GAP_NS 1000000ULL

/* ---- the thread goes to sleep ---- */

/* Does the sleep that is about to begin belong to the same wait as the last sleep? */
static __always_inline bool gil_same_wait(struct gil_wait *w, struct python_gil *gil)
{
	/*
	 * Taking the GIL increments switch_number, dropping does not. An increment of 1 since the
	 * wake-up, or since the start of the sleep: another thread took the GIL first. An increment
	 * of 2: either the waiter had the GIL in between, or several other threads had the GIL
	 * while the waiter slept or was runnable. In the second case the waiter sleeps again at
	 * once, without having woken a thread. After a timeout the number is read again when the
	 * waiter resumes; that others take the GIL twice within microseconds is rare.
	 */
	if (w->taken)
		return false;
	if (gil->switch_number - w->switch_number <= 1)
		return true;
	return !w->resumed && w->gap_ns <= (w->woken ? LOST_RACE_GAP_NS : SAME_WAIT_GAP_NS);
}

static __always_inline void gil_wait_open(struct gil_wait *w, __u64 now)
{
	w->start_ns = now;
	w->end_ns = w->runq_ns = 0;
	w->n_holders = w->holder = 0;
	w->sleeps = w->taken = w->resumed = 0;
	w->dropper = (struct gil_thread_ids){};
	__builtin_memset(w->holders, 0, sizeof(w->holders));
	w->forced_ns = w->forced_before_ns && now - w->forced_end_ns < FORCED_GAP_NS
			       ? w->forced_before_ns
			       : 0;
	w->forced_before_ns = 0;
}

static __always_inline void gil_wait_sleep(struct task_struct *task, struct thread *t,
					   struct gil_process *process, __u64 address, __u64 now)
{
	struct gil_history *history;
	struct gil_wait *w = &t->gil;
	struct gil_thread_ids holder;
	struct python_gil gil;

	if (!gil_read(address, &gil))
		return;
	if (w->start_ns && (w->gil != address || !gil_same_wait(w, &gil)))
		gil_wait_close(t);
	if (!w->start_ns && gil_wait_out)
		return;
	if (task_thread_pointer(task) != t->thread_pointer)
		gil_publish_self();
	if (!w->start_ns)
		gil_wait_open(w, now);
	if (!w->n_holders || !w->holders[0].tid)
		w->holder_tstate = gil.last_holder;
	history = gil_history_of(task->tgid, address);
	holder = gil_holder_of(process, task, gil.last_holder, history);
	gil_wait_held_by(w, holder);
	if (gil.locked) /* free: the thread woken just now will take the GIL */
		gil_held_by(history, task->tgid, address, now, holder);
	w->gil = address;
	gil_stacks_at_sleep(w, now);
	w->sleeps++;
	w->switch_number = gil.switch_number;
	w->woken = w->resumed = 0;
	w->word = GIL_COND;
}

/*
 * Is the thread, about to sleep on the lock at `offset` of the struct, in take_gil()? take_gil()
 * owns gil->mutex when sleeping on switch_mutex. drop_gil() does not, and locks gil->mutex while
 * gil->locked is still 1. A condition variable has internal locks.
 */
static __always_inline bool gil_lock_is_takers(struct task_struct *task, struct python_gil *gil,
					       __u64 address, __u64 offset, bool own)
{
	__u32 owner = 0;

	if (offset < PYTHON_GIL_MUTEX)
		return false;
	if (offset < PYTHON_GIL_SWITCH_COND)
		return !own || !gil->locked;
	bpf_probe_read_user(&owner, sizeof(owner),
			    (void *)address + PYTHON_GIL_MUTEX + PTHREAD_MUTEX_OWNER);
	return owner == typed_task_ns_id(task);
}

/*
 * The current thread sleeps on a lock of the GIL's struct. The wait is over when the thread is
 * last_holder: the thread took the GIL, and may have dropped the GIL since. take_gil() locks
 * gil->mutex first, so a wait can start with a sleep on the lock or consist of nothing more, when
 * the lock's owner is preempted. Global: the verifier explores it once.
 */
__noinline int gil_lock_sleep(__u64 address, __u64 offset, __u64 now)
{
	struct task_struct *task = current_task();
	__u32 tgid = current_tgid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct thread *t = thread_find(task);
	struct gil_thread_ids holder = {};
	struct python_gil gil;
	struct gil_wait *w;
	bool own, takes;

	if (!t || !process)
		return 0;
	w = &t->gil;
	if (!gil_read(address, &gil)) {
		gil_wait_close(t);
		return 0;
	}
	own = read_user_u64(gil.last_holder + process->tstate_thread_id) == t->thread_pointer;
	takes = gil_lock_is_takers(task, &gil, address, offset, own);
	if (w->start_ns && (w->gil != address || (own && !takes) || !gil_same_wait(w, &gil)))
		gil_wait_close(t);
	if (!w->start_ns) {
		if (!takes || gil_wait_out)
			return 0;
		gil_wait_open(w, now);
		if (!own)
			holder = gil_holder_of(process, task, gil.last_holder, NULL);
		w->holders[0] = (struct gil_holder){ .tid = holder.tid,
						     .host_tid = holder.host_tid,
						     .ident = holder.ident };
		w->n_holders = 1;
		w->holder_tstate = gil.last_holder;
		w->gil = address;
		/* as after a wake-up: the lock's owner may be about to take the GIL */
		w->switch_number = gil.switch_number;
		w->woken = 1;
	}
	w->sleeps++;
	w->word = GIL_LOCK;
	return 0;
}

/* The thread blocks. Returns whether the thread waits for a GIL. */
static __always_inline bool gil_blocked(struct task_struct *task, struct thread *t,
					struct user_call *call, __u64 now)
{
	__u32 tgid = task->tgid, word = GIL_NONE;
	struct gil_process *process = NULL;
	__u64 gil = 0;

	if (call->nr == NR_futex)
		process = bpf_map_lookup_elem(&gil_processes, &tgid);
	if (process && !process->by_callsite)
		word = gil_word_of(process, call, &gil);
	if (word == GIL_COND && process) {
		gil_wait_sleep(task, t, process, gil, now);
	} else if (word == GIL_LOCK && process) {
		gil_lock_sleep(gil, call->arg1 - gil, now);
	} else {
		gil_wait_close(t);
		if (word == GIL_SWITCH_COND)
			t->gil.word = GIL_SWITCH_COND;
	}
	return t->gil.word != GIL_NONE;
}

/*
 * Is the preempted thread still inside take_gil()? True on the way out of a futex() call on the
 * GIL: the thread's own sleep, or, with the GIL taken, the wake-up of the thread that was forced to
 * drop the GIL. True as well while the thread has not taken the GIL.
 */
static __always_inline bool gil_still_taking(struct gil_wait *w, struct user_call *call,
					     struct gil_process *process, struct thread *t)
{
	struct python_gil gil;

	if (w->gap_ns > SAME_WAIT_GAP_NS)
		return false;
	if (call->nr == NR_futex) {
		__u64 offset = call->arg1 - w->gil;

		if (offset < PYTHON_GIL_COND || offset >= PYTHON_GIL_SIZE)
			return false;
		/* FUTEX_WAKE on gil->cond is drop_gil() */
		return offset >= PYTHON_GIL_MUTEX || (call->arg2 & FUTEX_CMD_MASK) != FUTEX_WAKE;
	}
	return call->nr < 0 && w->gap_ns <= LOST_RACE_GAP_NS && gil_read(w->gil, &gil) &&
	       read_user_u64(gil.last_holder + process->tstate_thread_id) != t->thread_pointer;
}

/* The thread is preempted. Reports a wait that ended long ago. */
static __always_inline void gil_preempted(struct task_struct *task, struct thread *t,
					  struct user_call *call)
{
	__u32 tgid = task->tgid;
	struct gil_process *process;

	if (!t->gil.start_ns)
		return;
	process = bpf_map_lookup_elem(&gil_processes, &tgid);
	if (process && gil_still_taking(&t->gil, call, process, t))
		t->gil.word = GIL_CPU;
	else if (t->gil.gap_ns > 10 * SAME_WAIT_GAP_NS)
		gil_wait_close(t);
}

/* `state`: TASK_* bits, 0 for a preempted thread. Returns whether the thread waits for a GIL. */
static __always_inline bool gil_switch_out(struct task_struct *task, struct thread *t,
					   struct user_call *call, __u32 state, __u64 now)
{
	if (t->gil.taken == GIL_DROPPED)
		gil_wait_close(t);
	if (gil_wait_out && !t->gil.start_ns) /* an open wait goes on to its end */
		return false;
	if (!t->thread_pointer)
		gil_publish_self();
	gil_process_ran(task->tgid);
	if (state)
		return gil_blocked(task, t, call, now);
	gil_preempted(task, t, call);
	return false;
}

/* ---- the thread is woken, and runs again ---- */

/* The current thread is in take_gil() and took a GIL whose holder was forced to drop. */
static __always_inline void gil_taken(void)
{
	struct task_struct *taker = current_task();
	struct thread *own = thread_find(taker);
	struct user_call call;

	if (!own || !own->gil.start_ns || own->gil.taken == GIL_DROPPED)
		return;
	task_user_call(taker, &call);
	if (call.nr == NR_futex && (call.arg2 & FUTEX_CMD_MASK) == FUTEX_WAKE &&
	    call.arg1 - (own->gil.gil + PYTHON_GIL_SWITCH_COND) <
		    PYTHON_GIL_SWITCH_MUTEX - PYTHON_GIL_SWITCH_COND)
		own->gil.taken = GIL_TAKEN;
}

/*
 * The current thread dropped the GIL and does not wait for it any more. If its return to a CPU was
 * not traced (see find_unseen_end()), its record still says that it sleeps: the end of the wait is
 * known at its next switch out, which reports the wait.
 */
static __always_inline void gil_dropped(struct thread *own)
{
	if (own->gil.word == GIL_NONE)
		return gil_wait_close(own);
	own->gil.taken = GIL_DROPPED;
	own->gil.end_ns = 0;
}

/* The current thread wakes `task`: was the cause drop_gil() of the GIL that `task` waits for? */
static __always_inline void gil_woken(struct task_struct *task, struct thread *t, __u64 now)
{
	struct gil_holder *holder;
	struct task_struct *waker;
	struct gil_wait *w = &t->gil;
	struct user_call call;
	struct thread *own;
	struct python_gil gil;

	if (w->word == GIL_NONE || current_tgid() != (__u32)task->tgid)
		return;
	if (w->word == GIL_SWITCH_COND)
		return gil_taken();
	if (w->word != GIL_COND)
		return;
	waker = current_task();
	task_user_call(waker, &call);
	if (call.nr != NR_futex || (call.arg2 & FUTEX_CMD_MASK) != FUTEX_WAKE ||
	    call.arg1 - (w->gil + PYTHON_GIL_COND) >= PYTHON_GIL_MUTEX - PYTHON_GIL_COND ||
	    bpf_probe_read_user(&gil, sizeof(gil), (void *)w->gil))
		return;
	gil_held_by(gil_history_of(task->tgid, w->gil), task->tgid, w->gil, t->wake_ns,
		    (struct gil_thread_ids){ .tid = typed_task_ns_id(task),
					     .host_tid = task->pid,
					     .ident = t->thread_pointer });
	w->woken = 1;
	w->switch_number = gil.switch_number;
	w->dropper.host_tid = current_tid();
	w->dropper.tid = typed_task_ns_id(waker);
	w->dropper.ident = task_ident(waker);
	holder = gil_holder_at(w, w->holder);
	if (!holder->tid) { /* the holder was unknown until now */
		holder->tid = w->dropper.tid;
		holder->host_tid = w->dropper.host_tid;
		holder->ident = w->dropper.ident;
	}
	gil_stacks_at_wake(task, t, now);
	own = thread_find(waker);
	if (own)
		gil_dropped(own);
}

/* `end` 0: the switch in was not seen and its time is unknown. */
static __always_inline void gil_switch_in(struct task_struct *task, struct thread *t, __u64 end)
{
	struct gil_wait *w = &t->gil;

	if (end && w->word == GIL_SWITCH_COND) {
		w->forced_before_ns = end - t->off_ns;
		w->forced_end_ns = end;
	} else if (end && w->word == GIL_CPU) {
		w->end_ns = end;
		w->runq_ns += end - t->off_ns;
	} else if (end && w->word != GIL_NONE) {
		w->end_ns = end;
		w->runq_ns = t->wake_ns > t->off_ns && t->wake_ns < end ? end - t->wake_ns : 0;
		w->gap_ns = 0;
		if (w->n_holders)
			gil_attribute_sleep(gil_history_of(task->tgid, w->gil), w, task->pid,
					    t->off_ns, end);
	}
	w->word = GIL_NONE;
}

/*
 * The current thread resumes from a sleep that timed out, before user mode. Its next sleep is told
 * from this one by what happens from now on. Global: the verifier explores it once.
 */
__noinline int gil_timed_out(void)
{
	struct task_struct *task = current_task();
	__u32 tgid = current_tgid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct thread *t = thread_find(task);
	__u64 now = bpf_ktime_get_ns();
	struct python_gil gil;

	if (!process || !t || !t->gil.start_ns || t->gil.word || t->gil.woken ||
	    !gil_resumes(task, t, now) || !gil_read(t->gil.gil, &gil))
		return 0;
	/* without a CPU at the end of take_gil(), with the GIL taken */
	if (read_user_u64(gil.last_holder + process->tstate_thread_id) == t->thread_pointer)
		return 0;
	t->gil.switch_number = gil.switch_number;
	t->gil.resumed = 1;
	return 0;
}

/*
 * The agent stops: reports an open wait with the duration so far. Of a thread that dropped the GIL
 * the end is not known, and the wait is counted as lost.
 */
static __always_inline void gil_wait_end(struct task_struct *task, struct thread *t, __u64 now)
{
	if (t->gil.word != GIL_NONE && t->gil.word != GIL_SWITCH_COND &&
	    t->gil.taken != GIL_DROPPED)
		gil_switch_in(task, t, now > t->off_ns ? now : t->off_ns);
	if (t->gil.start_ns)
		gil_wait_report(task, &t->gil, GIL_METHOD_SCHED);
}

#endif
