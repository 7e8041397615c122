/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the Python stack of any thread of the current process, with or without the GIL. The
 * PyThreadState is found by the thread's identity, and data that may change during the walk is read
 * twice. Loops live in global functions, which the verifier explores once per program instead of
 * once per path; such functions take only numbers.
 */
#ifndef UNDERSPAN_PYTHON_THREADS_BPF_H
#define UNDERSPAN_PYTHON_THREADS_BPF_H

#define PYTHON_SLOTS 2 /* see enum python_slot */
#include "python/frames.bpf.h"
#include "python/processes.bpf.h"

/*
 * Walk slots per CPU. A program that runs with interrupts off cannot be interrupted by a second
 * walk of its kind; a walk before user mode can.
 */
enum python_slot { PYTHON_SLOT_SCHED, PYTHON_SLOT_RESUME };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PYTHON_SLOTS);
	__type(key, __u32);
	__type(value, struct python_walk);
} python_walks SEC(".maps");

static __always_inline struct python_walk *python_walk_of(__u32 slot)
{
	return bpf_map_lookup_elem(&python_walks, &slot);
}

static __always_inline bool current_is_python(void)
{
	__u32 tgid = current_tgid();

	return process_may_be_known(tgid) && bpf_map_lookup_elem(&python_processes, &tgid);
}

static __always_inline const struct python_offsets *
python_current_offsets(const struct python_process **ret_process)
{
	__u32 tgid = current_tgid();
	const struct python_process *process = bpf_map_lookup_elem(&python_processes, &tgid);

	*ret_process = process;
	return process ? bpf_map_lookup_elem(&python_binaries, &process->binary) : NULL;
}

/* More interpreters, and more threads in each, are not searched; the newest are the first. */
enum { PYTHON_SEARCH_INTERPRETERS = 2, PYTHON_SEARCH_THREADS = 64, PYTHON_SEARCH_STEP = 8 };

static __always_inline __u64 python_read_list(struct python_walk *walk, __u64 address)
{
	__u64 ret = 0;

	walk->unread |= bpf_probe_read_user(&ret, sizeof(ret), (void *)address);
	return ret;
}

/*
 * Compares the next threads of a list. Returns true when the thread is found. Global: as the body
 * of a loop, the verifier would explore it again for each step.
 */
__noinline int python_search_threads(__u32 slot, __u32 owner_at, __u32 next_at)
{
	struct python_walk *walk = python_walk_of(slot);
	__u64 wanted, owner;

	if (!walk)
		return 0;
	wanted = walk->ident ? walk->ident : walk->ns_tid;
	for (int i = 0; i < PYTHON_SEARCH_STEP && walk->next; i++) {
		owner = python_read_list(walk, walk->next + owner_at);
		if (owner == wanted) {
			walk->tstate = walk->next;
			return 1;
		}
		walk->unread |= !owner; /* 3.12 and later: a new thread's, perhaps */
		walk->next = python_read_list(walk, walk->next + next_at);
	}
	return 0;
}

/*
 * Finds the PyThreadState by walk->ident, or by walk->ns_tid when ident is 0. A thread that is in
 * no list is native, if all members of the lists could be read; a page may be absent for a moment.
 */
__noinline int python_find_tstate(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	__u64 interp, tstate, head = 0;
	__u32 at;

	if (!walk || !process || !o)
		return 0;
	walk->tstate = walk->unread = 0;
	walk->native = 0;
	at = walk->ident ? o->tstate_thread_id : o->tstate_native_thread_id;
	if (!at || !(walk->ident || walk->ns_tid))
		return 0;
	for (int i = 0; i < PYTHON_PROCESS_SLOTS && walk->ident && process->tstate_slots[i]; i++) {
		tstate = read_user_u64(walk->ident + process->tstate_slots[i]);
		if (tstate && read_user_u64(tstate + at) == walk->ident) {
			walk->tstate = tstate;
			return 0;
		}
	}
	interp = python_read_list(walk, process->runtime + o->runtime_interpreters_head);
	for (int k = 0; k < PYTHON_SEARCH_INTERPRETERS && interp; k++) {
		walk->next = head = python_read_list(walk, interp + o->interp_threads_head);
		for (int i = 0; i < PYTHON_SEARCH_THREADS / PYTHON_SEARCH_STEP && walk->next; i++) {
			if (python_search_threads(slot, at, o->tstate_next))
				return 0;
		}
		walk->unread |= walk->next;
		/* the list has changed since */
		walk->unread |= head ^ read_user_u64(interp + o->interp_threads_head);
		interp = python_read_list(walk, interp + o->interp_next);
	}
	walk->native = head && !walk->unread && !interp;
	return 0;
}

/* The offsets for frame `i` of a walk, NULL when there is no such frame. */
static __always_inline const struct python_offsets *python_walk_offsets(struct python_walk *walk,
									__u32 i)
{
	if (!walk || i >= PYTHON_STACK_MAX)
		return NULL;
	return bpf_map_lookup_elem(&python_binaries, &walk->binary);
}

/* Reads the frame at walk->frame into frame `i`. */
__noinline int python_take_frame(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o = python_walk_offsets(walk, i);

	if (o)
		python_read_frame(o, walk, slot, &walk->stack.frames[i]);
	return 0;
}

/* Adds the fingerprint of frame `i`'s code object. */
__noinline int python_take_check(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o = python_walk_offsets(walk, i);

	if (o)
		python_check_frame(o, walk, &walk->stack.frames[i]);
	return 0;
}

/*
 * Takes the stack of walk->tstate, whose thread may be running on a different CPU. Fingerprints are
 * read after all frames: code that is in a frame before and after (see python_stack_unchanged())
 * existed in between.
 */
__noinline int python_take_stack(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);

	if (!walk || !process || !o)
		return 0;
	walk->binary = process->binary;
	python_walk_begin(o, walk);
	for (__u32 i = 0; i < PYTHON_STACK_MAX && walk->frame; i++) {
		python_take_frame(slot, i);
		walk->stack.info.n = i + 1;
	}
	walk->stack.info.cut = walk->frame != 0;
	walk->block_generation++;
	for (__u32 i = 0; i < PYTHON_STACK_MAX && i < walk->stack.info.n; i++)
		python_take_check(slot, i);
	return 0;
}

/* Is the frame at walk->frame still frame `i`? Advances to the caller's frame. */
__noinline int python_frame_unchanged(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o = python_walk_offsets(walk, i);
	struct python_frame *before, *now;

	if (!o)
		return 0;
	now = &walk->scratch.frame;
	if (!python_read_frame(o, walk, slot, now))
		return 0;
	before = &walk->stack.frames[i];
	return !((before->code ^ now->code) & ~(__u64)PYTHON_FRAME_OWNER) &&
	       (!i || before->ip == now->ip);
}

/*
 * Is the stack just taken consistent? A thread that runs Python during the walk may yield frames of
 * different times. When a second walk finds the same frames, all of them existed at the same time
 * in between; the innermost frame may have advanced to a later instruction.
 */
__noinline int python_stack_unchanged(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	int same = 1;

	if (!walk || !o)
		return 0;
	walk->block_generation++;
	walk->frame = python_innermost_frame(o, walk->tstate);
	for (__u32 i = 0; i < PYTHON_STACK_MAX && i < walk->stack.info.n && same; i++)
		same = python_frame_unchanged(slot, i);
	return same && walk->stack.info.cut == (walk->frame != 0);
}

/* Is the thread of walk->tstate still at the instruction of `innermost`? */
static __always_inline bool python_at_same_instruction(__u32 slot,
						       const struct python_frame *innermost)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	const struct python_frame *now;

	if (!walk || !process || !o)
		return false;
	walk->binary = process->binary;
	python_walk_begin(o, walk);
	python_take_frame(slot, 0);
	python_take_check(slot, 0);
	now = &walk->stack.frames[0];
	walk->generation++; /* the thread may run from here on */
	return now->code == innermost->code && now->ip == innermost->ip &&
	       now->check == innermost->check;
}

#endif
