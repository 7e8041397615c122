/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Waits for the GIL, read off the scheduler. take_gil() sleeps in pthread_cond_timedwait() on
 * gil->cond: with glibc that is futex(FUTEX_WAIT_BITSET) on a word inside the condition variable,
 * and the only such wait there is. It times out every 5 ms, and may find that another thread was
 * quicker: the sleeps of one wait are told from those of the next by the GIL's switch_number.
 * The thread that wakes the sleeper is the one that dropped the GIL. The locks of the struct are
 * held for an instant, but by threads that may lose their CPU: a sleep for one inside take_gil()
 * is of the wait too, and so is being without a CPU before take_gil() is left.
 */
#ifndef UNDERSPAN_GIL_WAIT_BPF_H
#define UNDERSPAN_GIL_WAIT_BPF_H

#include "gil_holders.bpf.h"
#include "python.bpf.h"
#include "thread.bpf.h"

/* struct _gil_runtime_state, as all of 3.8 to 3.15 lay it out (Py_GIL_DISABLED: 8 bytes on) */
#if defined(__TARGET_ARCH_x86)
#define PTHREAD_MUTEX_SIZE 40
#elif defined(__TARGET_ARCH_arm64)
#define PTHREAD_MUTEX_SIZE 48
#endif
enum {
	GIL_COND_AT = 32,
	GIL_MUTEX_AT = GIL_COND_AT + 48,
	GIL_SWITCH_COND_AT = GIL_MUTEX_AT + PTHREAD_MUTEX_SIZE,
	GIL_SWITCH_MUTEX_AT = GIL_SWITCH_COND_AT + 48,
	GIL_SIZE = GIL_SWITCH_MUTEX_AT + PTHREAD_MUTEX_SIZE,
	MUTEX_OWNER_AT = 8, /* within a pthread_mutex_t */
};

enum gil_word {
	GIL_NONE,
	GIL_COND,	 /* take_gil(): wait until it is dropped */
	GIL_LOCK,	 /* take_gil() and drop_gil(): a lock of the struct itself */
	GIL_CPU,	 /* take_gil(): not asleep, but without a CPU */
	GIL_SWITCH_COND, /* drop_gil(): forced to drop it, wait until somebody has taken it */
};

enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1 };

/* take_gil() tries again within microseconds: what comes later on a CPU is another wait. */
#define SAME_WAIT_GAP_NS 100000ULL
/* From waking up in take_gil() to finding the GIL taken. */
#define LOST_RACE_GAP_NS 8000ULL
/* A forced drop_gil() is followed by take_gil() at once. */
#define FORCED_GAP_NS 1000000ULL

/* The beginning of the struct. */
struct gil {
	__u64 interval, last_holder;
	__s32 locked, hole;
	__u64 switch_number;
};

#include "gil_report.bpf.h"

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
 * Set by user space before it takes the programs away, one after the other: from then on nothing of
 * this object sees anything, lest a wait be seen to begin or go on and not to end.
 */
volatile __u64 gil_end_ns = 0;

/* ---- who is who ---- */

/* Lets others find the thread by the thread pointer that its interpreter knows it by. */
static __always_inline void gil_name_thread(struct task_struct *task, struct thread *t)
{
	__u64 pointer = task_thread_pointer(task);
	struct gil_thread_key key = { .thread_pointer = pointer, .host_pid = task->tgid };
	struct gil_thread_ids ids = { .host_tid = task->pid, .ident = task_ident(task) };

	if (pointer == t->thread_pointer)
		return;
	ids.tid = task_ns_id(task);
	bpf_map_update_elem(&gil_threads, &key, &ids, BPF_ANY);
	t->thread_pointer = pointer;
}

/* The thread that a thread state of the current process belongs to; `task`: one of its threads. */
static __always_inline struct gil_thread_ids gil_holder_of(struct gil_process *process,
							   struct task_struct *task, __u64 tstate)
{
	struct gil_thread_key key = { .host_pid = BPF_CORE_READ(task, tgid) };
	struct gil_thread_ids ids = {}, *known;

	key.thread_pointer = read_user_u64(tstate + process->tstate_thread_id);
	ids.ident = key.thread_pointer;
	known = bpf_map_lookup_elem(&gil_threads, &key);
	if (known)
		return *known;
	/* it has not been switched out yet since there was somebody to see it */
	if (process->tstate_native_thread_id)
		ids.tid = read_user_u64(tstate + process->tstate_native_thread_id);
	/* in the host's own PID namespace */
	if (task_ns_id(task) == (__u32)BPF_CORE_READ(task, pid))
		ids.host_tid = ids.tid;
	return ids;
}

/* ---- the thread goes to sleep ---- */

/* Which part of which GIL of the process a futex word lies in; *ret_gil is the GIL. */
static __always_inline __u32 gil_word_of(struct gil_process *process, struct user_call *call,
					 __u64 *ret_gil)
{
	__u32 command = call->arg2 & FUTEX_CMD_MASK;

	for (int i = 0; i < GIL_MAX_PER_PROCESS; i++) {
		__u64 gil = process->gils[i], offset = call->arg1 - gil;

		if (!gil)
			return GIL_NONE;
		if (offset < GIL_COND_AT || offset >= GIL_SIZE)
			continue;
		*ret_gil = gil;
		if (offset < GIL_MUTEX_AT)
			return command == FUTEX_CMD_WAIT_BITSET ? GIL_COND
			       : command == FUTEX_WAIT		? GIL_LOCK
								: GIL_NONE;
		if (offset < GIL_SWITCH_COND_AT || offset >= GIL_SWITCH_MUTEX_AT)
			return command == FUTEX_WAIT ? GIL_LOCK : GIL_NONE;
		return command == FUTEX_CMD_WAIT_BITSET ? GIL_SWITCH_COND : GIL_NONE;
	}
	return GIL_NONE;
}

/* Reads the GIL that a thread is about to wait for; false: it is none. */
static __always_inline bool gil_read(__u64 address, struct gil *ret)
{
	if (bpf_probe_read_user(ret, sizeof(*ret), (void *)address)) {
		gil_stat(STAT_READ_FAIL, 1);
		return false;
	}
	/* else of an interpreter that is gone since, its memory used for something else */
	return (ret->locked == 0 || ret->locked == 1) && !ret->hole && ret->interval &&
	       !(ret->interval >> 32);
}

/* Does the thread that is about to sleep still wait as it did in its last sleep? */
static __always_inline bool gil_same_wait(struct gil_wait *w, struct gil *gil)
{
	/*
	 * Dropping does not count as a switch, taking does. One more than at the wake, or than when
	 * the sleep began: somebody was quicker. Two: this thread had it, and somebody else after
	 * that; or others did, while it slept or got no CPU at first. Then it slept again at once,
	 * having woken nobody.
	 */
	return !w->taken && (gil->switch_number - w->switch_number <= 1 ||
			     w->gap_ns <= (w->woken ? LOST_RACE_GAP_NS : SAME_WAIT_GAP_NS));
}

static __always_inline void gil_wait_open(struct gil_wait *w, __u64 now)
{
	w->start_ns = now;
	w->end_ns = w->runq_ns = 0;
	w->n_holders = w->holder = 0;
	w->sleeps = w->taken = 0;
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
	struct gil_wait *w = &t->gil;
	struct gil_thread_ids holder;
	struct gil gil;

	if (!gil_read(address, &gil))
		return;
	if (w->start_ns && (w->gil != address || !gil_same_wait(w, &gil)))
		gil_wait_close(t);
	gil_name_thread(task, t);
	if (!w->start_ns)
		gil_wait_open(w, now);
	if (!w->n_holders || !w->holders[0].tid)
		w->holder_tstate = gil.last_holder;
	holder = gil_holder_of(process, task, gil.last_holder);
	gil_wait_held_by(w, holder);
	if (gil.locked) /* else who was woken just now will have it */
		gil_held_by(task->tgid, address, now, holder);
	w->gil = address;
	gil_stacks_at_sleep(task, t, now);
	w->sleeps++;
	w->switch_number = gil.switch_number;
	w->woken = 0;
	w->word = GIL_COND;
}

/*
 * Is the thread, which is about to sleep for a lock of the struct at `offset`, in take_gil()?
 * That has the first lock when it comes to the second. drop_gil() has not then, and takes the
 * first one while the GIL is still its own. A condition variable has locks of its own.
 */
static __always_inline bool gil_lock_is_takers(struct task_struct *task, struct gil *gil,
					       __u64 address, __u64 offset, bool own)
{
	__u32 owner = 0;

	if (offset < GIL_MUTEX_AT)
		return false;
	if (offset < GIL_SWITCH_COND_AT)
		return !own || !gil->locked;
	bpf_probe_read_user(&owner, sizeof(owner), (void *)address + GIL_MUTEX_AT + MUTEX_OWNER_AT);
	return owner == typed_task_ns_id(task);
}

/*
 * A wait is over when the thread was the last to have the GIL: it has got it, and maybe dropped it
 * again, since. take_gil() takes its locks before all else, so a wait can begin with one, or
 * consist of it: whoever has the lock may have lost its CPU.
 */
static __always_inline void gil_lock_sleep(struct task_struct *task, struct thread *t,
					   struct gil_process *process, __u64 address, __u64 offset,
					   __u64 now)
{
	struct gil_thread_ids holder = {};
	struct gil_wait *w = &t->gil;
	struct gil gil;
	bool own, takes;

	if (!gil_read(address, &gil))
		return gil_wait_close(t);
	own = read_user_u64(gil.last_holder + process->tstate_thread_id) == t->thread_pointer;
	takes = gil_lock_is_takers(task, &gil, address, offset, own);
	if (w->start_ns && (w->gil != address || (own && !takes) || !gil_same_wait(w, &gil)))
		gil_wait_close(t);
	if (!w->start_ns) {
		if (!takes)
			return;
		gil_wait_open(w, now);
		if (!own)
			holder = gil_holder_of(process, task, gil.last_holder);
		w->holders[0] = (struct gil_holder){ .tid = holder.tid,
						     .host_tid = holder.host_tid,
						     .ident = holder.ident };
		w->n_holders = 1;
		w->holder_tstate = gil.last_holder;
		w->gil = address;
		/* as after a wake-up: who has the lock may be about to take the GIL */
		w->switch_number = gil.switch_number;
		w->woken = 1;
	}
	w->sleeps++;
	w->word = GIL_LOCK;
}

/* The thread leaves its CPU of its own will. Returns whether it waits for a GIL. */
static __always_inline bool gil_switch_out(struct task_struct *task, struct thread *t,
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
		gil_lock_sleep(task, t, process, gil, call->arg1 - gil, now);
	} else {
		gil_wait_close(t);
		if (word == GIL_SWITCH_COND)
			t->gil.word = GIL_SWITCH_COND;
	}
	return t->gil.word != GIL_NONE;
}

/*
 * The thread is still inside take_gil(), as it was when its last sleep ended: it is on its way out
 * of a system call on this GIL, be that its sleep or, when it has the GIL already, the wake-up of
 * the thread that was forced to give it away; or it has not got the GIL yet.
 */
static __always_inline bool gil_still_taking(struct gil_wait *w, struct user_call *call,
					     struct gil_process *process, struct thread *t)
{
	struct gil gil;

	if (w->gap_ns > SAME_WAIT_GAP_NS)
		return false;
	if (call->nr == NR_futex) {
		__u64 offset = call->arg1 - w->gil;

		if (offset < GIL_COND_AT || offset >= GIL_SIZE)
			return false;
		/* else it drops the GIL */
		return offset >= GIL_MUTEX_AT || (call->arg2 & FUTEX_CMD_MASK) != FUTEX_WAKE;
	}
	return call->nr < 0 && w->gap_ns <= LOST_RACE_GAP_NS && gil_read(w->gil, &gil) &&
	       read_user_u64(gil.last_holder + process->tstate_thread_id) != t->thread_pointer;
}

/* Preempted, or about to be switched out anyhow: a wait that is long over is reported. */
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

/* ---- the thread is woken, and runs again ---- */

/* The current thread is in take_gil(), and has taken a GIL that another was forced to drop. */
static __always_inline void gil_taken(void)
{
	struct task_struct *taker = current_task();
	struct thread *own = thread_find(taker);
	struct user_call call;

	if (!own || !own->gil.start_ns)
		return;
	task_user_call(taker, &call);
	if (call.nr == NR_futex && (call.arg2 & FUTEX_CMD_MASK) == FUTEX_WAKE &&
	    call.arg1 - (own->gil.gil + GIL_SWITCH_COND_AT) <
		    GIL_SWITCH_MUTEX_AT - GIL_SWITCH_COND_AT)
		own->gil.taken = 1;
}

/* `task` is woken by the current thread: did that drop the GIL that it waits for? */
static __always_inline void gil_woken(struct task_struct *task, struct thread *t, __u64 now)
{
	struct gil_holder *holder;
	struct task_struct *waker;
	struct gil_wait *w = &t->gil;
	struct user_call call;
	struct thread *own;
	struct gil gil;

	if (w->word == GIL_NONE || current_tgid() != (__u32)task->tgid)
		return;
	if (w->word == GIL_SWITCH_COND)
		return gil_taken();
	if (w->word != GIL_COND)
		return;
	waker = current_task();
	task_user_call(waker, &call);
	if (call.nr != NR_futex || (call.arg2 & FUTEX_CMD_MASK) != FUTEX_WAKE ||
	    call.arg1 - (w->gil + GIL_COND_AT) >= GIL_MUTEX_AT - GIL_COND_AT ||
	    bpf_probe_read_user(&gil, sizeof(gil), (void *)w->gil))
		return;
	gil_held_by(task->tgid, w->gil, t->wake_ns,
		    (struct gil_thread_ids){ .tid = typed_task_ns_id(task),
					     .host_tid = task->pid,
					     .ident = t->thread_pointer });
	w->woken = 1;
	w->switch_number = gil.switch_number;
	w->dropper.host_tid = current_tid();
	w->dropper.tid = typed_task_ns_id(waker);
	w->dropper.ident = task_ident(waker);
	holder = gil_holder_at(w, w->holder);
	if (!holder->tid) { /* nobody had seen it before */
		holder->tid = w->dropper.tid;
		holder->host_tid = w->dropper.host_tid;
		holder->ident = w->dropper.ident;
	}
	gil_stacks_at_wake(task, t, now);
	own = thread_find(waker);
	if (own) /* whoever drops the GIL does not wait for it any more */
		gil_wait_close(own);
}

/* `end` 0: it came back unseen, and it is not known when. */
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
			gil_share_out(task, w, t->off_ns, end);
	}
	w->word = GIL_NONE;
}

/* Nobody watches any more: an open wait is over, or goes on and is reported as far as it came. */
static __always_inline void gil_wait_end(struct task_struct *task, struct thread *t, __u64 now)
{
	if (t->gil.word != GIL_NONE && t->gil.word != GIL_SWITCH_COND)
		gil_switch_in(task, t, now > t->off_ns ? now : t->off_ns);
	if (t->gil.start_ns)
		gil_wait_report(task, &t->gil, GIL_METHOD_SCHED);
}

#endif
