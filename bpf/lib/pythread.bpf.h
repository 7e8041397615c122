/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of a thread that sleeps, holds no GIL, or is another one of the current
 * process: its thread state is found by the thread's identity, and what may have changed while it
 * was read is looked at twice.
 */
#ifndef UNDERSPAN_PYTHREAD_BPF_H
#define UNDERSPAN_PYTHREAD_BPF_H

#include "pystack.bpf.h"
#include "python_process.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* host pid */
	__type(value, struct python_process);
} python_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PYTHON_PROCESS_BINARIES);
	__type(key, __u32);
	__type(value, struct python_offsets);
} python_binaries SEC(".maps");

/* The users of one object's scratch cannot interrupt each other: all run with interrupts off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python_scratch);
} python_scratch_memory SEC(".maps");

/* What a walk needs to know; false: this is no Python that can be read. */
struct python_view {
	const struct python_process *process;
	const struct python_offsets *offsets;
	struct python_scratch *scratch;
};

static __always_inline bool python_view_of(__u32 tgid, struct python_view *ret)
{
	__u32 zero = 0;

	ret->process = bpf_map_lookup_elem(&python_processes, &tgid);
	if (!ret->process)
		return false;
	ret->offsets = bpf_map_lookup_elem(&python_binaries, &ret->process->binary);
	ret->scratch = bpf_map_lookup_elem(&python_scratch_memory, &zero);
	return ret->offsets && ret->scratch;
}

/* More thread states than this are not searched, newest first. */
enum { PYTHON_SEARCH_MAX = 192 };

static __always_inline bool python_tstate_is(const struct python_offsets *o, __u64 tstate,
					     __u64 ident, __u32 ns_tid)
{
	if (ident)
		return read_user_u64(tstate + o->tstate_thread_id) == ident;
	return o->tstate_native_thread_id &&
	       read_user_u64(tstate + o->tstate_native_thread_id) == ns_tid;
}

/*
 * The thread state of a thread of the current process, by what pthread_self() says in it, or where
 * that is not known (0) by its id; 0: there is none, or it was not found.
 */
static __always_inline __u64 python_tstate_of(const struct python_view *view, __u64 ident,
					      __u32 ns_tid)
{
	const struct python_offsets *o = view->offsets;
	__u64 interp, tstate;

	if (ident && view->process->tstate_slot) {
		tstate = read_user_u64(ident + view->process->tstate_slot);
		if (tstate && python_tstate_is(o, tstate, ident, ns_tid))
			return tstate;
	}
	interp = read_user_u64(view->process->runtime + o->runtime_interpreters_head);
	tstate = read_user_u64(interp + o->interp_threads_head);
	for (int i = 0; i < PYTHON_SEARCH_MAX && interp; i++) {
		if (tstate && python_tstate_is(o, tstate, ident, ns_tid))
			return tstate;
		if (tstate) {
			tstate = read_user_u64(tstate + o->tstate_next);
		} else {
			interp = read_user_u64(interp + o->interp_next);
			tstate = interp ? read_user_u64(interp + o->interp_threads_head) : 0;
		}
	}
	return 0;
}

/*
 * Is the stack that was just taken still the thread's? Where it runs Python on another CPU
 * meanwhile, frames of different moments may have been put together. The same frames twice have all
 * been there at once, in between; the innermost may have gone on to another instruction.
 */
static __always_inline bool python_stack_stands(const struct python_view *view, __u64 tstate,
						const struct python_frame *frames,
						const struct python_stack_info *info)
{
	const struct python_offsets *o = view->offsets;
	struct python_scratch *scratch = view->scratch;
	__u32 size = o->frame_owner ? o->frame_owner + 1 : o->frame_ip + 4;
	__u32 n = info->n;
	bool same = true;
	__u64 frame;

	if (o->tstate_cframe)
		tstate = read_user_u64(tstate + o->tstate_cframe);
	frame = read_user_u64(tstate + o->tstate_frame);
	for (__u32 i = 0; i < PYTHON_STACK_MAX && i < n && same; i++) {
		__u64 code, ip;

		if (bpf_probe_read_user(scratch->frame, size & 127, (void *)frame))
			return false;
		code = frame_u64(scratch, o->frame_code) & ~(__u64)o->frame_code_tags;
		ip = frame_u64(scratch, o->frame_ip);
		ip = o->ip_kind == PYTHON_IP_POINTER ? ip - code : (__u32)ip;
		ip = ip < PYTHON_FRAME_NO_IP ? ip : PYTHON_FRAME_NO_IP;
		same = !((frames[i].code ^ code) & ~(__u64)PYTHON_FRAME_OWNER) &&
		       (!i || frames[i].ip == (__u32)ip);
		frame = frame_u64(scratch, o->frame_previous);
	}
	return same && info->cut == (frame != 0);
}

#endif
