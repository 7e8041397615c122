/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack in an event: frames, innermost first, as addresses. Written by
 * bpf/python/frames.bpf.h, resolved to names by src/rows/stack.c.
 */
#ifndef UNDERSPAN_PYTHON_STACK_H
#define UNDERSPAN_PYTHON_STACK_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#include "python_offsets.h"

enum { PYTHON_STACK_MAX = 128 };

enum {
	PYTHON_FRAME_OWNER = 7,	       /* bits of `code` with the frame's owner byte */
	PYTHON_FRAME_NO_IP = 1U << 31, /* the instruction is not in the code: no line */
};

struct python_frame {
	__u64 code;  /* address of the code object, and the owner: see python_offsets.h */
	__u32 ip;    /* as ip_kind says; PYTHON_IP_POINTER: counted from the code object */
	__u32 check; /* python_code_check(): detects a replaced code object */
};

/* Describes a stack in the fixed part of an event, which may have two stacks. */
struct python_stack_info {
	__u16 n;  /* number of frames behind the fixed part */
	__u8 cut; /* there were more */
	__u8 pad;
};

/*
 * The fingerprint of a code object. Allocators reuse freed memory soon, with the same addresses
 * inside, so the content counts as well, unless the version numbers its code objects. All members
 * are constant during the life of a code object, except the hash of the file name, which may be
 * computed late.
 */
struct python_code_fingerprint {
	__u64 type, filename, name, lines; /* addresses; the type is overwritten in freed memory */
	__u64 firstlineno;
	__u64 version; /* not 0: all below are 0 */
	__u64 filename_length, filename_hash;
	__u64 name_length, name_hash;
	__u64 lines_size, lines_begin;
};

/* The members of str and bytes objects from the length on. */
struct python_str_head {
	__u64 length, hash;
	__u32 state, pad;
};
struct python_bytes_head {
	__u64 size, hash, begin;
};

/*
 * The address of the last 8 bytes of a string, a replacement for a hash that was never computed.
 * For strings shorter than 8 bytes the read includes the following bytes of the memory block.
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

/* Inlined: on kernels before 6.6 the calling BPF programs have no stack for a further call. */
static inline __attribute__((always_inline)) __u32
python_code_check(const struct python_code_fingerprint *marks)
{
	const __u64 *words = (const __u64 *)marks;
	__u64 mixed = 0;

	for (unsigned int i = 0; i < sizeof(*marks) / sizeof(*words); i++)
		mixed = python_mix(mixed, words[i]);
	return (__u32)mixed;
}

#endif
