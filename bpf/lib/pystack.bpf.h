/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walking the Python frames of the current thread, with plain reads of its memory: three to six
 * reads a frame. Texts are user space's work.
 */
#ifndef UNDERSPAN_PYSTACK_BPF_H
#define UNDERSPAN_PYSTACK_BPF_H

#include "python.bpf.h"
#include "python_stack.h"

enum { PYTHON_OBJECT_TYPE = 8 };

/* The thread state of the current thread, which must hold this GIL. */
static __always_inline __u64 python_gil_holder(const struct python_offsets *o, __u64 gil)
{
	return gil ? read_user_u64(gil + o->gil_last_holder) : 0;
}

/* What is read stands in the scratch memory: programs that call this have little stack to spare. */
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

static __always_inline __u32 read_code_check(const struct python_offsets *o, __u64 code,
					     struct python_scratch *scratch)
{
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
		if (marks->filename != scratch->filename) {
			scratch->filename = marks->filename;
			read_text_marks(o, scratch, marks->filename, &scratch->filename_length,
					&scratch->filename_hash);
		}
		marks->filename_length = scratch->filename_length;
		marks->filename_hash = scratch->filename_hash;
		read_text_marks(o, scratch, marks->name, &marks->name_length, &marks->name_hash);
		if (bpf_probe_read_user(lines, sizeof(*lines),
					(void *)(marks->lines + o->bytes_size)))
			__builtin_memset(lines, 0, sizeof(*lines));
		marks->lines_size = lines->size;
		marks->lines_begin = lines->begin;
	}
	return python_code_check(marks);
}

/* Returns the frame that called this one. */
static __always_inline __u64 read_python_frame(const struct python_offsets *o, __u64 frame,
					       struct python_scratch *scratch,
					       struct python_frame *ret)
{
	/* not a byte more than a frame has: the memory may end there */
	__u32 size = o->frame_owner ? o->frame_owner + 1 : o->frame_ip + 4;
	__u64 code, ip;
	__u8 owner = 0;

	ret->code = ret->ip = ret->check = 0;
	if (bpf_probe_read_user(scratch->frame, size & 127, (void *)frame))
		return 0; /* "<unread>" */
	code = frame_u64(scratch, o->frame_code) & ~(__u64)o->frame_code_tags;
	ip = frame_u64(scratch, o->frame_ip);
	if (o->ip_kind == PYTHON_IP_POINTER)
		ip -= code;
	else
		ip = (__u32)ip;
	if (o->frame_owner)
		owner = scratch->frame[o->frame_owner & 127];
	ret->code = (code & ~(__u64)PYTHON_FRAME_OWNER) | (owner & PYTHON_FRAME_OWNER);
	ret->ip = ip < PYTHON_FRAME_NO_IP ? ip : PYTHON_FRAME_NO_IP;
	ret->check = read_code_check(o, code, scratch);
	return frame_u64(scratch, o->frame_previous);
}

static __always_inline __u64 python_innermost_frame(const struct python_offsets *o, __u64 tstate)
{
	if (o->tstate_cframe)
		tstate = read_user_u64(tstate + o->tstate_cframe);
	return read_user_u64(tstate + o->tstate_frame);
}

#endif
