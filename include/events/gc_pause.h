/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * A garbage collection that stopped an interpreter: bpf/gc_pause.bpf.c -> src/trackers/gc_pause.c
 */
#ifndef UNDERSPAN_EVENTS_GC_PAUSE_H
#define UNDERSPAN_EVENTS_GC_PAUSE_H

#include "events/event.h"
#include "python_offsets.h"
#include "python_stack.h"

enum gc_reason {
	GC_REASON_UNKNOWN,
	GC_REASON_HEAP,
	GC_REASON_SHUTDOWN,
	GC_REASON_MANUAL,
	GC_REASON_MAX
};

struct gc_pause_event {
	struct event_header header;
	__u64 collected;       /* objects */
	__u64 uncollectable;   /* objects */
	__u64 long_lived;      /* objects left by a full collection */
	__u32 binary_id;       /* of the probed file, see struct gc_site */
	__u32 frozen_threads;  /* waited for the GIL at the end, see frozen_threads() */
	__u32 sibling_threads; /* all threads of the process but the collecting thread */
	__s8 generation;       /* -1: could not be read */
	__u8 reason;	       /* enum gc_reason */
	__u8 method;	       /* enum gc_method, src/cpython/image.h */
	__u8 frozen_unknown;   /* not counted: the row has NULL */
	__u8 long_lived_known; /* 0: the row has NULL */
	__u8 pad[3];
	struct python_stack_info stack; /* frames follow: the code that triggered the collection */
};

/* Where an integer argument lies when a probe fires. Same values as enum arg_place. */
enum gc_arg_place { GC_ARG_NONE, GC_ARG_REGISTER, GC_ARG_MEMORY, GC_ARG_CONSTANT };

/* A probed instruction; written by user space, indexed by the uprobe's cookie. */
struct gc_site {
	__u64 va;	 /* in the ELF file; instruction pointer - va = load bias */
	__s64 arg_value; /* displacement or constant */
	__u32 binary_id;
	__u8 arg_place;
	__u8 arg_reg; /* index into struct pt_regs, in 8-byte words */
	__u8 arg_size;
	__u8 method;
	__u8 reason_reg; /* as arg_reg, holds enum gc_reason - 1; 0: none does */
	__u8 pad[7];
};

/* Offsets of a binary; written by user space, indexed by binary_id. */
struct gc_binary {
	__u64 runtime_va;
	struct python_offsets offsets;
};

#endif
