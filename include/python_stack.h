/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * A Python stack as it travels in an event: the frames, innermost first, as addresses that user
 * space makes texts of (src/python/stack.c). bpf/lib/pystack.bpf.h takes it.
 */
#ifndef UNDERSPAN_PYTHON_STACK_H
#define UNDERSPAN_PYTHON_STACK_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#include "python_offsets.h"

enum { PYTHON_STACK_MAX = 128 };

enum {
	PYTHON_FRAME_OWNER = 7,	       /* these bits of `code` are the frame's owner byte */
	PYTHON_FRAME_NO_IP = 1U << 31, /* the instruction is not in the code: no line */
};

struct python_frame {
	__u64 code;  /* address of the code object, and the owner: see python_offsets.h */
	__u32 ip;    /* as ip_kind says; PYTHON_IP_POINTER: counted from the code object */
	__u32 check; /* python_code_check(): is it still the same one when it is looked at? */
};

/* Two stacks may stand in one event: each has one of these in the event's fixed part. */
struct python_stack_info {
	__u16 n;  /* frames that follow the event's fixed part */
	__u8 cut; /* there were more */
	__u8 pad;
};

/*
 * By what a code object is known again. Memory of a dead one is soon another one's, with the same
 * addresses in it, for allocators give out first what they got back last: so content counts too,
 * unless the version numbers its code objects. Nothing here changes while one lives, but for the
 * hash of its file's name, which may be computed late.
 */
struct python_code_marks {
	__u64 type, filename, name, lines; /* addresses; the type is overwritten in freed memory */
	__u64 firstlineno;
	__u64 version; /* not 0: all below are 0 */
	__u64 filename_length, filename_hash;
	__u64 name_length, name_hash;
	__u64 lines_size, lines_begin;
};

/* The heads of a str and of a bytes object, from where their lengths stand. */
struct python_str_head {
	__u64 length, hash;
	__u32 state, pad;
};
struct python_bytes_head {
	__u64 size, hash, begin;
};

/*
 * Where the last 8 bytes of a text are, which stand for its hash where that was never computed. A
 * text of less than 8 bytes is read with what follows in its block of memory.
 */
static inline __u64 python_text_end(const struct python_offsets *o, __u64 object,
				    const struct python_str_head *head)
{
	__u64 size = head->length * (head->state >> 2 & 7);

	object += head->state >> 6 & 1 ? o->unicode_ascii_data : o->unicode_compact_data;
	return size > 8 ? object + size - 8 : object;
}

static inline __u64 python_mix(__u64 mixed, __u64 word)
{
	mixed = (mixed ^ word) * 0x9e3779b97f4a7c15ULL;
	return mixed ^ mixed >> 32;
}

/* Inlined: BPF programs that call it have no stack for one call more on kernels before 6.6. */
static inline __attribute__((always_inline)) __u32
python_code_check(const struct python_code_marks *marks)
{
	const __u64 *words = (const __u64 *)marks;
	__u64 mixed = 0;

	for (unsigned int i = 0; i < sizeof(*marks) / sizeof(*words); i++)
		mixed = python_mix(mixed, words[i]);
	return (__u32)mixed;
}

#endif
