/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of a thread that sleeps, holds no GIL, or is another one of the current
 * process: its thread state is found by the thread's identity, and what may have changed while it
 * was read is looked at twice. Loops are in global functions, which the verifier goes through once
 * a program and not once for each way to them; those take numbers only.
 */
#ifndef UNDERSPAN_PYTHREAD_BPF_H
#define UNDERSPAN_PYTHREAD_BPF_H

#define PYTHON_SLOTS 2 /* see enum python_slot */
#include "pystack.bpf.h"
#include "python_places.bpf.h"

/*
 * One a CPU and a slot: what runs with interrupts off cannot be interrupted by its like; what a
 * thread does on its way to user mode can.
 */
enum python_slot { PYTHON_SLOT_SCHED, PYTHON_SLOT_RETURN };
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

static __always_inline const struct python_offsets *
python_current_offsets(const struct python_process **ret_process)
{
	__u32 tgid = current_tgid();
	const struct python_process *process = bpf_map_lookup_elem(&python_processes, &tgid);

	*ret_process = process;
	return process ? bpf_map_lookup_elem(&python_binaries, &process->binary) : NULL;
}

/* More interpreters, and more threads in each, are not searched; the newest are the first. */
enum { PYTHON_SEARCH_INTERPRETERS = 2, PYTHON_SEARCH_THREADS = 64 };

/* Finds the thread state of walk->ident or else of walk->ns_tid. */
__noinline int python_find_tstate(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	__u64 interp, tstate, wanted;
	__u32 at;

	if (!walk || !process || !o)
		return 0;
	walk->tstate = 0;
	at = walk->ident ? o->tstate_thread_id : o->tstate_native_thread_id;
	wanted = walk->ident ? walk->ident : walk->ns_tid;
	if (!at || !wanted)
		return 0;
	for (int i = 0; i < PYTHON_PROCESS_SLOTS && walk->ident && process->tstate_slots[i]; i++) {
		tstate = read_user_u64(walk->ident + process->tstate_slots[i]);
		if (tstate && read_user_u64(tstate + at) == wanted) {
			walk->tstate = tstate;
			return 0;
		}
	}
	interp = read_user_u64(process->runtime + o->runtime_interpreters_head);
	for (int k = 0; k < PYTHON_SEARCH_INTERPRETERS && interp; k++) {
		tstate = read_user_u64(interp + o->interp_threads_head);
		for (int i = 0; i < PYTHON_SEARCH_THREADS && tstate; i++) {
			if (read_user_u64(tstate + at) == wanted) {
				walk->tstate = tstate;
				return 0;
			}
			tstate = read_user_u64(tstate + o->tstate_next);
		}
		interp = read_user_u64(interp + o->interp_next);
	}
	return 0;
}

/* Reads the frame that walk->frame points to, as the one of this index. */
__noinline int python_take_frame(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o;

	if (!walk || i >= PYTHON_STACK_MAX)
		return 0;
	o = bpf_map_lookup_elem(&python_binaries, &walk->binary);
	if (!o)
		return 0;
	python_read_frame(o, walk, slot, &walk->stack.frames[i]);
	return 0;
}

/* Reads what the code of this frame is known by. */
__noinline int python_take_check(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o;

	if (!walk || i >= PYTHON_STACK_MAX)
		return 0;
	o = bpf_map_lookup_elem(&python_binaries, &walk->binary);
	if (!o)
		return 0;
	python_check_frame(o, walk, &walk->stack.frames[i]);
	return 0;
}

/*
 * Takes the stack of walk->tstate. Its thread may run on another CPU: what its code is known by is
 * read anew when all frames are, for code that is in a frame before and after that (see
 * python_stack_stands()) was there in between.
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
	walk->pass++;
	for (__u32 i = 0; i < PYTHON_STACK_MAX && i < walk->stack.info.n; i++)
		python_take_check(slot, i);
	return 0;
}

/* Is the frame that walk->frame points to the one that was taken as this? Goes on to the next. */
__noinline int python_frame_stands(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o;
	struct python_frame *before, *now;

	if (!walk || i >= PYTHON_STACK_MAX)
		return 0;
	o = bpf_map_lookup_elem(&python_binaries, &walk->binary);
	now = &walk->scratch.frame;
	if (!o || !python_read_frame(o, walk, slot, now))
		return 0;
	before = &walk->stack.frames[i];
	return !((before->code ^ now->code) & ~(__u64)PYTHON_FRAME_OWNER) &&
	       (!i || before->ip == now->ip);
}

/*
 * Is the stack that was just taken still the thread's? Where it runs Python on another CPU
 * meanwhile, frames of different moments may have been put together. The same frames twice have all
 * been there at once, in between; the innermost may have gone on to another instruction.
 */
__noinline int python_stack_stands(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	int same = 1;

	if (!walk || !o)
		return 0;
	walk->pass++;
	walk->frame = python_innermost_frame(o, walk->tstate);
	for (__u32 i = 0; i < PYTHON_STACK_MAX && i < walk->stack.info.n && same; i++)
		same = python_frame_stands(slot, i);
	return same && walk->stack.info.cut == (walk->frame != 0);
}

/* Is the thread of walk->tstate still at the instruction of this, its innermost frame? */
static __always_inline bool python_same_place(__u32 slot, const struct python_frame *innermost)
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
	walk->moment++; /* it may run */
	return now->code == innermost->code && now->ip == innermost->ip &&
	       now->check == innermost->check;
}

#endif
