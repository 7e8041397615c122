/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which thread is an event loop's? System calls alone do not tell: gunicorn's gthread polls as
 * asyncio does. The Python stack at a poll does: asyncio has a frame of _run_once(), gevent's hub a
 * frame of run() in gevent/hub.py; trio polls in a function that run() in trio/_core/_run.py calls,
 * but not where another loop's thread runs it (guest mode). uvloop polls from C, with libuv's room
 * for 1024 events, in a thread that runs Python. curio, and loops that do not use epoll, are not
 * recognized.
 */
#ifndef UNDERSPAN_LOOP_STALL_RECOGNIZE_BPF_H
#define UNDERSPAN_LOOP_STALL_RECOGNIZE_BPF_H

#include "loop_stall/stack.bpf.h"

enum {
	LOOP_FRAMES = 8,     /* innermost frames that are looked at */
	LOOP_TRIO_FRAME = 1, /* the caller of the function that polls */
	LIBUV_EVENTS = 1024,
	/* a thread is looked at in its 2nd, 4th, 8th ... poll of a descriptor */
	LOOP_LOOKS_UNTIL = 1 << 16,
};

#define TEXT_RUN_ONC 0x636e6f5f6e75725fULL /* "_run_onc", little endian */
#define TEXT_RUN     0x6e7572ULL	   /* "run" */
#define TEXT_HUB_PY  0x79702e6275682f74ULL /* "t/hub.py" */
#define TEXT_RUN_PY  0x79702e6e75725f2fULL /* "/_run.py" */

/* Users of PYTHON_SLOT_RESUME: kernels since 7.0 may preempt a program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} loop_looks SEC(".maps");

/* The loop that frame `i` of the last walk is proof of. */
__noinline int loop_of_frame(__u32 slot, __u32 i)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_offsets *o = python_walk_offsets(walk, i);
	struct python_str_head name = {}, file = {};
	__u64 code, text;

	if (!o || i >= PYTHON_STACK_MAX || !walk->stack.frames[i].check)
		return LOOP_NONE;
	code = walk->stack.frames[i].code & ~(__u64)PYTHON_FRAME_OWNER;
	text = read_user_u64(code + o->code_name);
	bpf_probe_read_user(&name, sizeof(name), (void *)(text + o->unicode_length));
	text = read_user_u64(text + o->unicode_ascii_data);
	if (name.length == 9 && text == TEXT_RUN_ONC)
		return LOOP_ASYNCIO;
	if (name.length != 3 || (text & 0xffffff) != TEXT_RUN)
		return LOOP_NONE;
	text = read_user_u64(code + o->code_filename);
	bpf_probe_read_user(&file, sizeof(file), (void *)(text + o->unicode_length));
	text = read_user_u64(python_text_end(o, text, &file));
	if (text == TEXT_RUN_PY && i == LOOP_TRIO_FRAME)
		return LOOP_TRIO;
	return text == TEXT_HUB_PY ? LOOP_GEVENT : LOOP_NONE;
}

/* The kind of loop that the current thread polls for. */
__noinline int loop_look(__u32 slot, __u32 libuv)
{
	struct python_walk *walk = python_walk_of(slot);
	int kind = LOOP_NONE;

	if (!walk || !loop_walk(slot))
		return LOOP_NONE;
	for (__u32 i = 0; i < LOOP_FRAMES && i < walk->stack.info.n && !kind; i++)
		kind = loop_of_frame(slot, i);
	return !kind && libuv ? LOOP_UVLOOP : kind;
}

/*
 * The address of the GIL of the thread just walked. 0: unknown, or the C library is not glibc, with
 * which a wait for the GIL cannot be told from other locks.
 */
__noinline int loop_note_gil(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	struct loop_thread *loop = loop_find();
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	__u64 interp;

	if (!walk || !loop || !process || !o)
		return 0;
	loop->gil = 0;
#if defined(__TARGET_ARCH_x86)
	/* glibc: the third word of a thread's descriptor points to the descriptor */
	if (read_user_u64(walk->ident + 16) != walk->ident)
		return 0;
#endif
	if (!walk->tstate || !o->gil)
		return 0;
	interp = read_user_u64(walk->tstate + o->tstate_interp);
	loop->gil = o->gil_kind == PYTHON_GIL_IN_RUNTIME ? process->runtime + o->gil
							 : read_user_u64(interp + o->gil);
	return 0;
}

static __always_inline __u8 loop_recognize(__u32 events)
{
	__u32 zero = 0;
	__u64 *users = bpf_map_lookup_elem(&loop_looks, &zero);
	__u8 kind = LOOP_NONE;

	if (!users)
		return LOOP_NONE;
	__sync_fetch_and_add(users, 1);
	if (*(volatile __u64 *)users == 1) {
		kind = loop_look(PYTHON_SLOT_RESUME, events == LIBUV_EVENTS);
		if (kind)
			loop_note_gil(PYTHON_SLOT_RESUME);
	}
	__sync_fetch_and_add(users, -1);
	return kind;
}

/* A poll of a descriptor that is not (known as) the loop's. True: it is the loop's from now on. */
static __always_inline bool loop_becomes(struct loop_thread *loop, __u32 fd, __u32 events)
{
	__u32 n;
	__u8 kind;

	if (loop->candidate_fd != fd || !loop->candidate_polls) {
		loop->candidate_fd = fd;
		loop->candidate_polls = 1;
		return false;
	}
	n = ++loop->candidate_polls;
	if (n & (n - 1) || n > LOOP_LOOKS_UNTIL)
		return false;
	kind = loop_recognize(events);
	if (!kind)
		return false;
	loop->kind = kind;
	loop->epoll_fd = fd;
	loop->candidate_polls = 0;
	loop->busy_ns = 0;
	return true;
}

#endif
