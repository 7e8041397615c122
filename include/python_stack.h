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
 * Memory of a dead code object is soon another one's, at the same address. What it held stays there
 * until then, but for the first 8 or 16 bytes, where allocators keep their lists: hence the type.
 */
static inline __u32 python_code_check(__u64 type, __u64 name, __u64 lines, __u32 firstlineno)
{
	__u64 mixed = (type << 10 ^ name ^ lines << 20 ^ (__u64)firstlineno << 44) *
		      0x9e3779b97f4a7c15ULL;

	return (__u32)(mixed >> 32);
}

#endif
