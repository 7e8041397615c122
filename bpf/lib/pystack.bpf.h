/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walking the Python frames of the current thread, with plain reads of its memory: some 100 ns a
 * frame. Texts are user space's work.
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

/* The head of a str: its length, its hash, its state and what pads it. */
struct python_str_head {
	__u64 length, hash;
	__u32 state, pad;
};

static __always_inline void read_text_marks(const struct python_offsets *o, __u64 object,
					    __u64 *ret_length, __u64 *ret_part)
{
	struct python_str_head head = {};

	bpf_probe_read_user(&head, sizeof(head), (void *)(object + o->unicode_length));
	*ret_length = head.length;
	*ret_part = read_user_u64(python_text_part(o, object, head.length, head.state));
}

static __always_inline __u32 read_code_check(const struct python_offsets *o, __u64 code)
{
	struct python_code_marks marks = {};
	__u64 lines[3] = {}; /* of the bytes object: its size, its hash, its first bytes */
	__u32 firstlineno = 0;

	bpf_probe_read_user(&firstlineno, sizeof(firstlineno),
			    (void *)(code + o->code_firstlineno));
	marks.firstlineno = firstlineno;
	marks.type = read_user_u64(code + PYTHON_OBJECT_TYPE);
	marks.filename = read_user_u64(code + o->code_filename);
	marks.name = read_user_u64(code + o->code_name);
	marks.lines = read_user_u64(code + o->code_lines);
	read_text_marks(o, marks.filename, &marks.filename_length, &marks.filename_part);
	read_text_marks(o, marks.name, &marks.name_length, &marks.name_part);
	bpf_probe_read_user(lines, sizeof(lines), (void *)(marks.lines + o->bytes_size));
	marks.lines_size = lines[0];
	marks.lines_part = lines[2];
	return python_code_check(&marks);
}

static __always_inline void read_python_frame(const struct python_offsets *o, __u64 frame,
					      struct python_frame *ret)
{
	__u64 code = read_user_u64(frame + o->frame_code) & ~(__u64)o->frame_code_tags, ip = 0;
	__u8 owner = 0;

	if (o->ip_kind == PYTHON_IP_POINTER) {
		ip = read_user_u64(frame + o->frame_ip) - code;
		bpf_probe_read_user(&owner, sizeof(owner), (void *)(frame + o->frame_owner));
	} else {
		bpf_probe_read_user(&ip, sizeof(__u32), (void *)(frame + o->frame_ip));
	}
	ret->code = (code & ~(__u64)PYTHON_FRAME_OWNER) | (owner & PYTHON_FRAME_OWNER);
	ret->ip = ip < PYTHON_FRAME_NO_IP ? ip : PYTHON_FRAME_NO_IP;
	ret->check = read_code_check(o, code);
}

/*
 * Writes the frames of a thread state of the current process, PYTHON_STACK_MAX at most, into
 * `frames`, which is memory of a map or a ring buffer; their number into `info`, which must be
 * such memory too (the verifier shall not follow the rest of the program once for each number).
 * The interpreter's own frames are among them: to sort them out here costs the verifier too much.
 */
static __always_inline void python_stack(const struct python_offsets *o, __u64 tstate,
					 struct python_frame *frames,
					 struct python_stack_info *info)
{
	__u64 frame = 0;

	info->n = 0;
	info->cut = 0;
	if (!tstate)
		return;
	if (o->tstate_cframe)
		tstate = read_user_u64(tstate + o->tstate_cframe);
	frame = read_user_u64(tstate + o->tstate_frame);
	for (int i = 0; i < PYTHON_STACK_MAX && frame; i++) {
		read_python_frame(o, frame, &frames[i]);
		frame = read_user_u64(frame + o->frame_previous);
		info->n = i + 1;
	}
	info->cut = frame != 0;
}

#endif
