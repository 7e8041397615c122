/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The context (contextvars.Context) in which a loop hands work to a pool and writes an answer.
 * asyncio runs each task in a context of its own, and servers handle each request in a task: the
 * work that was handed on in the context of the answer is the request's. Not with uvloop, which
 * writes later, outside of tasks, nor on arm64, where the thread's identity is unknown
 * (task_ident()).
 */
#ifndef UNDERSPAN_REQUEST_CONTEXT_BPF_H
#define UNDERSPAN_REQUEST_CONTEXT_BPF_H

#include "python/threads.bpf.h"
#include "sched/thread.bpf.h"

struct request_context_key {
	__u64 loop;    /* task_key() */
	__u64 context; /* address of the object, may be reused after the task's end */
};

struct request_context_work {
	__u64 receiver;		   /* task_key() of the pool's thread that got the last work */
	__u64 given_ns, before_ns; /* of the last hand-off, and of the one before, perhaps of an
				    * earlier task at the same address */
};

/* LRU: tasks that write no answer leave their entries. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct request_context_key);
	__type(value, struct request_context_work);
} request_context_works SEC(".maps");

/*
 * Has the thread handed requests to a pool? In a thread that serves one request at a time, what
 * looked so were wake-ups by its handlers.
 */
static __always_inline bool request_hands_on(const struct request_sums *sums)
{
	return sums->gives && sums->serves != REQUEST_SERVES_ONE;
}

/* The context of the current thread `t`, which runs Python; 0: unknown, or none. */
static __noinline __u64 request_context(struct thread *t)
{
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	__u64 ident = task_ident(current_task()), tstate = t->request.tstate;

	if (!process || !o || !o->tstate_context || !ident)
		return 0;
	for (int i = 0; i < PYTHON_PROCESS_SLOTS; i++) {
		if (tstate && read_user_u64(tstate + o->tstate_thread_id) == ident)
			break;
		tstate = process->tstate_slots[i] ? read_user_u64(ident + process->tstate_slots[i])
						  : 0;
	}
	t->request.tstate = tstate;
	return tstate ? read_user_u64(tstate + o->tstate_context) : 0;
}

/* The loop `t` has read a request: not in a task's context. Loops without a pool pay nothing. */
static __always_inline void request_context_read(struct thread *t)
{
	if (!request_hands_on(&t->request))
		return;
	t->request.read_context = request_context(t);
	t->request.reads_known = 1;
}

/* The context of the current thread `t`, a loop, if it is a task's own; 0: unknown. */
static __always_inline __u64 request_task_context(struct thread *t)
{
	__u64 context = t->request.reads_known ? request_context(t) : 0;

	return context == t->request.read_context ? 0 : context;
}

/*
 * The loop `t` hands work on to `receiver`, or more of the same request's work. Returns the task's
 * context; 0: unknown.
 */
static __always_inline __u64 request_context_gives(struct thread *t, __u64 receiver, __u64 now,
						   bool more)
{
	struct request_context_key key = { .loop = bpf_get_current_task() };
	struct request_context_work work = { .receiver = receiver, .given_ns = now };
	struct request_context_work *known;

	t->request.gives = 1;
	key.context = request_task_context(t);
	if (!key.context)
		return 0;
	known = bpf_map_lookup_elem(&request_context_works, &key);
	if (known)
		work.before_ns = more ? known->before_ns : known->given_ns;
	bpf_map_update_elem(&request_context_works, &key, &work, BPF_ANY);
	return key.context;
}

/*
 * The loop `t` begins to answer a request read at `read_ns`. Returns the task's context, 0 for
 * unknown; *ret is set if work was handed on in it since. The context of two answers in a row
 * without such work is no task's: uvloop writes large answers in the task, and others later.
 */
static __always_inline __u64 request_context_answers(struct thread *t, __u64 read_ns,
						     struct request_context_work *ret)
{
	struct request_context_key key = { .loop = bpf_get_current_task() };
	struct request_context_work *known;

	key.context = request_hands_on(&t->request) ? request_task_context(t) : 0;
	if (!key.context)
		return 0;
	known = bpf_map_lookup_elem(&request_context_works, &key);
	if (known && known->given_ns >= read_ns) {
		*ret = *known;
		t->request.tasks_answer = 1;
		/* the task ends soon, and a later one may have its context's address */
		bpf_map_delete_elem(&request_context_works, &key);
	} else if (t->request.other_context == key.context) {
		return 0;
	} else {
		t->request.other_context = key.context;
	}
	return key.context;
}

#endif
