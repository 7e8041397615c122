/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walking Python frames, with plain reads of the current process's memory: one read for the frame,
 * one to four for its code object where that was not met before in the same walk. Texts are user
 * space's work.
 */
#ifndef UNDERSPAN_PYSTACK_BPF_H
#define UNDERSPAN_PYSTACK_BPF_H

#include "python.bpf.h"
#include "python_stack.h"

enum { PYTHON_OBJECT_TYPE = 8 };

/*
 * What was read of a code object, or of the name of its file, and at which moment. It holds for as
 * long as whoever has the object in a frame does not run, which is: for one walk, or for those of
 * the same moment, but not from one moment to the next.
 */
struct python_known_code {
	__u64 code;
	__u32 check, moment;
};
struct python_known_file {
	__u64 object, length, hash, moment;
};
enum { PYTHON_KNOWN_CODES = 128, PYTHON_KNOWN_FILES = 16 }; /* powers of two */

static __always_inline __u32 python_known_at(__u64 address, __u32 places)
{
	return address * 0x9e3779b97f4a7c15ULL >> 40 & (places - 1);
}

/* What is read stands here: programs that walk have little stack to spare. */
struct python_scratch {
	__u8 frame[128 + 8];
	__u8 code[256 + 8];
	struct python_code_marks marks;
	struct python_str_head text;
	struct python_bytes_head lines;
	struct python_known_code codes[PYTHON_KNOWN_CODES];
	struct python_known_file files[PYTHON_KNOWN_FILES];
};

/* A stack, and by what stacks are told apart where they are kept. */
struct python_stack {
	struct python_stack_info info;
	__u32 pad;
	struct python_frame frames[PYTHON_STACK_MAX];
};

/* A walk through memory of the current process: in a map, for it is big. */
struct python_walk {
	__u64 ident;  /* of the thread, see task_ident(); 0: not known */
	__u64 tstate; /* what is walked; 0: nothing */
	__u64 frame;  /* the next */
	__u32 ns_tid, binary;
	__u32 moment; /* one more whenever threads may have run on since; the first is 1 */
	__u32 shown;  /* frames that have code of Python */
	__u64 hash;   /* of the frames */
	struct python_scratch scratch;
	struct python_stack stack;
};

/* The thread state of the current thread, which must hold this GIL. */
static __always_inline __u64 python_gil_holder(const struct python_offsets *o, __u64 gil)
{
	return gil ? read_user_u64(gil + o->gil_last_holder) : 0;
}

static __always_inline void read_text_marks(const struct python_offsets *o,
					    struct python_scratch *scratch, __u64 object,
					    __u64 *ret_length, __u64 *ret_hash)
{
	struct python_str_head *head = &scratch->text;

	if (bpf_probe_read_user(head, sizeof(*head), (void *)(object + o->unicode_length)))
		__builtin_memset(head, 0, sizeof(*head));
	if (head->hash == (__u64)-1)
		head->hash = read_user_u64(python_text_end(o, object, head));
	*ret_length = head->length;
	*ret_hash = head->hash;
}

/* The offsets are those of a file that may be anybody's: the masks are for the verifier and them.
 */
static __always_inline __u64 code_u64(const struct python_scratch *scratch, __u32 offset)
{
	return *(__u64 *)(scratch->code + (offset & 255));
}

static __always_inline __u32 code_u32(const struct python_scratch *scratch, __u32 offset)
{
	return *(__u32 *)(scratch->code + (offset & 255));
}

static __always_inline __u64 frame_u64(const struct python_scratch *scratch, __u32 offset)
{
	return *(__u64 *)(scratch->frame + (offset & 127));
}

static __always_inline void read_file_marks(const struct python_offsets *o,
					    struct python_walk *walk)
{
	struct python_code_marks *marks = &walk->scratch.marks;
	__u32 at = python_known_at(marks->filename, PYTHON_KNOWN_FILES);
	struct python_known_file *known = &walk->scratch.files[at];

	if (known->object != marks->filename || known->moment != walk->moment) {
		known->object = marks->filename;
		known->moment = walk->moment;
		read_text_marks(o, &walk->scratch, marks->filename, &known->length, &known->hash);
	}
	marks->filename_length = known->length;
	marks->filename_hash = known->hash;
}

static __always_inline __u32 read_code_check(const struct python_offsets *o, __u64 code,
					     struct python_walk *walk)
{
	struct python_scratch *scratch = &walk->scratch;
	struct python_code_marks *marks = &scratch->marks;
	struct python_bytes_head *lines = &scratch->lines;

	__builtin_memset(marks, 0, sizeof(*marks));
	/* their lines are the last of what is read of code objects */
	if (bpf_probe_read_user(scratch->code, (o->code_lines + 8) & 255, (void *)code))
		return 0;
	marks->type = code_u64(scratch, PYTHON_OBJECT_TYPE);
	marks->filename = code_u64(scratch, o->code_filename);
	marks->name = code_u64(scratch, o->code_name);
	marks->lines = code_u64(scratch, o->code_lines);
	marks->firstlineno = code_u32(scratch, o->code_firstlineno);
	if (o->code_version)
		marks->version = code_u32(scratch, o->code_version);
	if (!marks->version) {
		read_file_marks(o, walk);
		read_text_marks(o, scratch, marks->name, &marks->name_length, &marks->name_hash);
		if (bpf_probe_read_user(lines, sizeof(*lines),
					(void *)(marks->lines + o->bytes_size)))
			__builtin_memset(lines, 0, sizeof(*lines));
		marks->lines_size = lines->size;
		marks->lines_begin = lines->begin;
	}
	return python_code_check(marks);
}

static __always_inline __u32 code_check(const struct python_offsets *o, __u64 code,
					struct python_walk *walk)
{
	struct python_known_code *known =
		&walk->scratch.codes[python_known_at(code, PYTHON_KNOWN_CODES)];

	if (known->code != code || known->moment != walk->moment) {
		known->check = read_code_check(o, code, walk);
		known->code = code;
		known->moment = walk->moment;
	}
	return known->check;
}

/* Has the frame no code of Python? What stands in the place of its code object is none. */
static __always_inline bool frame_is_internal(const struct python_offsets *o, __u8 owner)
{
	return o->frame_owner_internal && owner >= o->frame_owner_internal;
}

/* Takes the frame that walk->frame points to; goes on to the one that called it. */
static __always_inline void python_walk_frame(const struct python_offsets *o,
					      struct python_walk *walk, struct python_frame *ret)
{
	/* not a byte more than a frame has: the memory may end there */
	__u32 size = o->frame_owner ? o->frame_owner + 1 : o->frame_ip + 4;
	struct python_scratch *scratch = &walk->scratch;
	__u64 code, ip;
	__u8 owner = 0;

	ret->code = ret->ip = ret->check = 0;
	if (bpf_probe_read_user(scratch->frame, size & 127, (void *)walk->frame)) {
		walk->frame = 0; /* "<unread>" */
		return;
	}
	code = frame_u64(scratch, o->frame_code) & ~(__u64)o->frame_code_tags;
	ip = frame_u64(scratch, o->frame_ip);
	walk->frame = frame_u64(scratch, o->frame_previous);
	if (o->ip_kind == PYTHON_IP_POINTER)
		ip -= code;
	else
		ip = (__u32)ip;
	if (o->frame_owner)
		owner = scratch->frame[o->frame_owner & 127];
	ret->code = (code & ~(__u64)PYTHON_FRAME_OWNER) | (owner & PYTHON_FRAME_OWNER);
	ret->ip = ip < PYTHON_FRAME_NO_IP ? ip : PYTHON_FRAME_NO_IP;
	if (!frame_is_internal(o, owner & PYTHON_FRAME_OWNER)) {
		ret->check = code_check(o, code, walk);
		walk->shown++;
	}
	walk->hash = python_mix(walk->hash, ret->code);
	walk->hash = python_mix(walk->hash, (__u64)ret->check << 32 | ret->ip);
}

static __always_inline __u64 python_innermost_frame(const struct python_offsets *o, __u64 tstate)
{
	if (o->tstate_cframe)
		tstate = read_user_u64(tstate + o->tstate_cframe);
	return read_user_u64(tstate + o->tstate_frame);
}

/*
 * Begins the walk of walk->tstate. Its frames are then taken one by one, by a global function of
 * the program's own: the verifier goes through those once and not once a frame.
 */
static __always_inline void python_walk_begin(const struct python_offsets *o,
					      struct python_walk *walk)
{
	walk->stack.info = (struct python_stack_info){};
	walk->hash = 0;
	walk->shown = 0;
	walk->frame = walk->tstate ? python_innermost_frame(o, walk->tstate) : 0;
}

/* Copies what was taken; `frames` has room for PYTHON_STACK_MAX. */
static __always_inline void python_copy_stack(const struct python_stack *stack,
					      struct python_frame *frames,
					      struct python_stack_info *info)
{
	__u32 n = *(volatile __u16 *)&stack->info.n;

	if (n > PYTHON_STACK_MAX)
		n = PYTHON_STACK_MAX;
	barrier_var(n);
	if (n > PYTHON_STACK_MAX)
		return;
	info->n = n;
	info->cut = stack->info.cut;
	bpf_probe_read_kernel(frames, n * sizeof(*frames), stack->frames);
}

#endif
