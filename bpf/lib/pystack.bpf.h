/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walking Python frames, with plain reads of the current process's memory: first all frames of a
 * stack, then what their code objects are known by. Texts are user space's work.
 */
#ifndef UNDERSPAN_PYSTACK_BPF_H
#define UNDERSPAN_PYSTACK_BPF_H

#include "python.bpf.h"
#include "python_settled.bpf.h"
#include "python_stack.h"

enum { PYTHON_OBJECT_TYPE = 8 };

/*
 * Frames of 3.11+ lie side by side in their thread's stack of them: the memory around the one that
 * is wanted is read with it, but never a page that nothing was wanted of. All else lies anywhere,
 * and is read by itself: what is read with it would be memory that no cache has.
 */
enum {
	PYTHON_BLOCK = 1024,
	PYTHON_OBJECT_MAX = 256, /* begins in the block, and ends behind it */
	PYTHON_BLOCKS = 4,	 /* a power of two */
	PYTHON_PAGE = 4096,	 /* the least that there is */
};
struct python_block {
	__u64 start;
	__u64 pass; /* python_walk.pass when it was read; 0: it is not whole */
	__u8 bytes[PYTHON_BLOCK + PYTHON_OBJECT_MAX + 8];
};

/* Walks that one CPU may be at, at a time: see pythread.bpf.h. */
#ifndef PYTHON_SLOTS
#define PYTHON_SLOTS 1
#endif
enum { PYTHON_BLOCKS_OF_CPU = PYTHON_SLOTS * PYTHON_BLOCKS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PYTHON_BLOCKS_OF_CPU);
	__type(key, __u32);
	__type(value, struct python_block);
} python_blocks SEC(".maps");

/*
 * What was read of a code object, or of the name of its file, and at which moment. It holds for as
 * long as whoever has the object in a frame does not run, which is: for one walk, or for those of
 * the same moment, but not from one moment to the next; then it is read again, and only what its
 * pointers lead to is taken as known if it has settled (python_settled.bpf.h).
 */
struct python_known_code {
	__u64 code, shape; /* as it was last read: see code_shape() */
	__u64 settled_ns;  /* when it was last looked at in full, if it had settled then */
	__u32 check, moment;
};
struct python_known_file {
	__u64 object, length, hash, moment;
};
enum { PYTHON_KNOWN_CODES = 128, PYTHON_KNOWN_FILES = 16 }; /* powers of two */

/* What is read stands here: programs that walk have little stack to spare. */
struct python_scratch {
	struct python_code_marks marks;
	struct python_frame frame;
	struct python_settled settled;
	__u8 object[PYTHON_OBJECT_MAX + 8];
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
	__u32 ns_tid, binary, tgid;
	__u32 moment; /* one more whenever threads may have run on since; the first is 1 */
	__u64 pass;   /* blocks that were read in another one do not count; the first is 1 */
	__u32 shown;  /* frames that have code of Python */
	__u64 hash;   /* of the frames */
	__u64 now;    /* when it began, ns */
	struct python_scratch scratch;
	struct python_stack stack;
};

/* The thread state of the current thread, which must hold this GIL. */
static __always_inline __u64 python_gil_holder(const struct python_offsets *o, __u64 gil)
{
	return gil ? read_user_u64(gil + o->gil_last_holder) : 0;
}

/*
 * `size` bytes (less than PYTHON_OBJECT_MAX) of the process's memory; NULL if they cannot be read.
 * The next call overwrites them.
 */
static __always_inline const __u8 *python_object(struct python_walk *walk, __u64 address,
						 __u32 size)
{
	__u8 *object = walk->scratch.object;

	return bpf_probe_read_user(object, size & (PYTHON_OBJECT_MAX - 1), (void *)address)
		       ? NULL
		       : object;
}

/* The same, with what is around it: for frames that lie side by side. */
static __always_inline const __u8 *python_neighbours(struct python_walk *walk, __u32 slot,
						     __u64 address, __u32 size)
{
	__u64 start = address & ~(__u64)(PYTHON_BLOCK - 1);
	__u32 at = address & (PYTHON_BLOCK - 1), n = PYTHON_BLOCK + PYTHON_OBJECT_MAX;
	__u32 index = slot * PYTHON_BLOCKS + python_known_at(start, PYTHON_BLOCKS);
	struct python_block *block = bpf_map_lookup_elem(&python_blocks, &index);

	if (!block)
		return NULL;
	if ((address & (PYTHON_PAGE - 1)) + size > PYTHON_PAGE)
		return python_object(walk, address, size);
	if (block->start == start && block->pass == walk->pass)
		return block->bytes + at;
	block->pass = 0;
	if ((start & (PYTHON_PAGE - 1)) == PYTHON_PAGE - PYTHON_BLOCK)
		n = PYTHON_BLOCK;
	if (bpf_probe_read_user(block->bytes, n, (void *)start))
		return NULL;
	block->start = start;
	block->pass = walk->pass;
	return block->bytes + at;
}

/* The offsets are those of a file that may be anybody's: the masks are for the verifier and them.
 */
static __always_inline __u64 member_u64(const __u8 *object, __u32 offset)
{
	return *(__u64 *)(object + (offset & (PYTHON_OBJECT_MAX - 1)));
}

static __always_inline __u32 member_u32(const __u8 *object, __u32 offset)
{
	return *(__u32 *)(object + (offset & (PYTHON_OBJECT_MAX - 1)));
}

static __always_inline void read_text_marks(const struct python_offsets *o,
					    struct python_walk *walk, __u64 object,
					    __u64 *ret_length, __u64 *ret_hash)
{
	const struct python_str_head *head;
	__u64 hash = 0, length = 0;

	head = (const void *)python_object(walk, object + o->unicode_length, sizeof(*head));
	if (head) {
		length = head->length;
		hash = head->hash;
		if (hash == (__u64)-1)
			hash = read_user_u64(python_text_end(o, object, head));
	}
	*ret_length = length;
	*ret_hash = hash;
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
		read_text_marks(o, walk, marks->filename, &known->length, &known->hash);
	}
	marks->filename_length = known->length;
	marks->filename_hash = known->hash;
}

/*
 * The numbers and pointers of a code object, all that never change, and whose it is: up to 3.11. It
 * is only compared as a whole: the bits need not be spread, as python_mix() does.
 */
static __always_inline __u64 code_shape(const struct python_offsets *o, const __u8 *object,
					__u32 tgid)
{
	enum { FIRST = PYTHON_OBJECT_TYPE, WORDS = 4, REST_MAX = 12 };
	const __u64 factor = 0x9e3779b97f4a7c15ULL;
	__u64 shape = tgid;
	__u32 at = o->code_firstlineno & ~7U;

	for (int i = 0; i < WORDS; i++)
		shape = (shape + member_u64(object, FIRST + 8 * i)) * factor;
	for (int i = 0; i < REST_MAX && at <= o->code_lines; i++, at += 8)
		shape = (shape + member_u64(object, at)) * factor;
	return shape;
}

/* What the pointers of a code object lead to, which walk->scratch.marks are. */
static __always_inline void read_content_marks(const struct python_offsets *o,
					       struct python_walk *walk)
{
	struct python_code_marks *marks = &walk->scratch.marks;
	const struct python_bytes_head *lines;

	read_file_marks(o, walk);
	read_text_marks(o, walk, marks->name, &marks->name_length, &marks->name_hash);
	lines = (const void *)python_object(walk, marks->lines + o->bytes_size, sizeof(*lines));
	if (lines) {
		marks->lines_size = lines->size;
		marks->lines_begin = lines->begin;
	}
}

/* Reads what this code object is known by into known->check, 0 if it cannot be read. */
static __always_inline void read_code_check(const struct python_offsets *o, __u64 code,
					    struct python_walk *walk,
					    struct python_known_code *known)
{
	struct python_code_marks *marks = &walk->scratch.marks;
	struct python_settled *settled = &walk->scratch.settled, *place;
	bool same = known->code == code;
	const __u8 *object;
	__u32 version;
	__u64 shape;

	known->code = code;
	known->moment = walk->moment;
	/* their lines are the last of what is read of code objects */
	object = python_object(walk, code, o->code_lines + 8);
	if (!object) {
		known->check = known->settled_ns = 0;
		return;
	}
	version = o->code_version ? member_u32(object, o->code_version) : 0;
	shape = version ? 0 : code_shape(o, object, walk->tgid);
	if (same && known->shape == shape && walk->now - known->settled_ns < SETTLED_TRUST_NS)
		return;
	known->shape = shape;
	known->settled_ns = 0;
	__builtin_memset(marks, 0, sizeof(*marks));
	marks->type = member_u64(object, PYTHON_OBJECT_TYPE);
	marks->filename = member_u64(object, o->code_filename);
	marks->name = member_u64(object, o->code_name);
	marks->lines = member_u64(object, o->code_lines);
	marks->firstlineno = member_u32(object, o->code_firstlineno);
	marks->version = version;
	if (version) {
		known->check = python_code_check(marks);
		return;
	}
	place = settled_find(walk->tgid, code, settled);
	if (settled_is(settled, code, shape) && settled_trusted(settled, walk->now)) {
		known->check = settled->check;
		known->settled_ns = settled->seen_ns;
		return;
	}
	read_content_marks(o, walk);
	known->check = python_code_check(marks);
	if (!place)
		return;
	settled_seen(place, settled, walk->tgid, code, shape, known->check, walk->now);
	if (settled_is(settled, code, shape) && settled_trusted(settled, walk->now))
		known->settled_ns = walk->now;
}

static __always_inline __u32 code_check(const struct python_offsets *o, __u64 code,
					struct python_walk *walk)
{
	struct python_known_code *known =
		&walk->scratch.codes[python_known_at(code, PYTHON_KNOWN_CODES)];

	if (known->code != code || known->moment != walk->moment)
		read_code_check(o, code, walk, known);
	return known->check;
}

/* Has the frame no code of Python? What stands in the place of its code object is none. */
static __always_inline bool frame_is_internal(const struct python_offsets *o, __u8 owner)
{
	return o->frame_owner_internal && owner >= o->frame_owner_internal;
}

/*
 * Reads the frame that walk->frame points to, all but the check; goes on to the one that called
 * it. False: it cannot be read ("<unread>"), and none follows.
 */
static __always_inline bool python_read_frame(const struct python_offsets *o,
					      struct python_walk *walk, __u32 slot,
					      struct python_frame *ret)
{
	/* not a byte more than a frame has: the memory may end there */
	__u32 size = o->frame_owner ? o->frame_owner + 1 : o->frame_ip + 4;
	const __u8 *frame = o->frame_owner ? python_neighbours(walk, slot, walk->frame, size)
					   : python_object(walk, walk->frame, size);
	__u64 code, ip;
	__u8 owner = 0;

	ret->code = ret->ip = ret->check = 0;
	walk->frame = 0;
	if (!frame)
		return false;
	code = member_u64(frame, o->frame_code) & ~(__u64)o->frame_code_tags;
	ip = member_u64(frame, o->frame_ip);
	walk->frame = member_u64(frame, o->frame_previous);
	if (o->ip_kind == PYTHON_IP_POINTER)
		ip -= code;
	else
		ip = (__u32)ip;
	if (o->frame_owner)
		owner = frame[o->frame_owner & (PYTHON_OBJECT_MAX - 1)];
	ret->code = (code & ~(__u64)PYTHON_FRAME_OWNER) | (owner & PYTHON_FRAME_OWNER);
	ret->ip = ip < PYTHON_FRAME_NO_IP ? ip : PYTHON_FRAME_NO_IP;
	return true;
}

/* What the code object of a frame that was read is known by. */
static __always_inline void python_check_frame(const struct python_offsets *o,
					       struct python_walk *walk, struct python_frame *frame)
{
	if (frame->code && !frame_is_internal(o, frame->code & PYTHON_FRAME_OWNER)) {
		frame->check = code_check(o, frame->code & ~(__u64)PYTHON_FRAME_OWNER, walk);
		walk->shown++;
	}
	walk->hash = python_mix(walk->hash, frame->code);
	walk->hash = python_mix(walk->hash, (__u64)frame->check << 32 | frame->ip);
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
	walk->pass++;
	walk->now = bpf_ktime_get_ns();
	walk->tgid = current_tgid();
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
