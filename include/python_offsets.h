/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * Offsets into the structures of a build of CPython. User space finds the offsets; the BPF programs
 * get them in a map, per binary. An offset is in bytes from the start of the structure in the
 * member's name.
 */
#ifndef UNDERSPAN_PYTHON_OFFSETS_H
#define UNDERSPAN_PYTHON_OFFSETS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum python_gil_kind {
	PYTHON_GIL_IN_RUNTIME = 1, /* 3.8-3.11: the struct lies at _PyRuntime + gil */
	PYTHON_GIL_OF_INTERP = 2,  /* 3.12+: *(void **)(interp + gil) is its address */
};

/*
 * The location of the counters of the three generations. PYTHON_GC_STATS_RING: a pointer to a ring
 * of records per generation. At the end of a collection a record is written to the slot given by
 * the ring's one-byte index; counts are running totals, as in the older layouts.
 */
enum python_gc_stats_kind {
	PYTHON_GC_STATS_IN_RUNTIME = 1, /* 3.8: array of 3 at _PyRuntime + gc_stats */
	PYTHON_GC_STATS_OF_INTERP = 2,	/* 3.9-3.14: array of 3 at interp + gc_stats */
	PYTHON_GC_STATS_RING = 3,	/* 3.15: *(void **)(interp + gc_stats) */
};

enum python_ip_kind {
	PYTHON_IP_BYTES = 1,   /* 3.8, 3.9: int, byte offset of the last instruction */
	PYTHON_IP_UNITS = 2,   /* 3.10: int, the same in units of 2 bytes */
	PYTHON_IP_POINTER = 3, /* 3.11+: pointer into the code object; unit = (ip - code) / 2 */
};

enum python_lines_kind {
	PYTHON_LINES_LNOTAB = 1,   /* 3.8, 3.9 */
	PYTHON_LINES_PAIRS = 2,	   /* 3.10 (PEP 626) */
	PYTHON_LINES_LOCATION = 3, /* 3.11+ */
};

enum { PYTHON_GENERATIONS = 3 };

struct python_offsets {
	__u8 major, minor, micro; /* micro 255: unknown */
	__u8 gil_kind;		  /* enum python_gil_kind */
	__u8 gc_stats_kind;	  /* enum python_gc_stats_kind */
	__u8 ip_kind;		  /* enum python_ip_kind */
	__u8 lines_kind;	  /* enum python_lines_kind */
	/*
	 * Frames with an owner byte >= this value belong to the interpreter itself, without Python
	 * code; 0: the version has no such frames and no owner byte.
	 */
	__u8 frame_owner_internal;

	__u32 runtime_interpreters_head; /* pointer to the newest interpreter */

	__u32 interp_next;
	__u32 interp_threads_head; /* pointer to the newest thread state */
	__u32 interp_modules;	   /* pointer to the dict sys.modules */

	__u32 tstate_next;
	__u32 tstate_interp;
	__u32 tstate_thread_id;	       /* unsigned long, pthread_self() */
	__u32 tstate_native_thread_id; /* unsigned long, the kernel's tid in the innermost
					* namespace; 0: not before 3.11 */

	__u32 tstate_context; /* the present contextvars.Context, may be NULL; 0: not known */

	__u32 gil;	       /* see gil_kind */
	__u32 gil_last_holder; /* PyThreadState of the present or last holder */
	__u32 gil_locked;      /* int: 1 held, 0 free, -1 not created */
	__u32 gil_cond;	       /* condition variable of the waiters */

	/* generation k is at + k * gc_stats_size, or in the ring at gc_ring_start[k] */
	__u32 gc_stats;	      /* see gc_stats_kind */
	__u32 gc_stats_size;  /* size of an entry */
	__u32 gc_collections; /* in an entry, Py_ssize_t each */
	__u32 gc_collected;
	__u32 gc_uncollectable;
	__u32 gc_ring_start[PYTHON_GENERATIONS];
	__u32 gc_ring_index[PYTHON_GENERATIONS]; /* signed char: slot of the newest record */
	__u32 gc_ring_slots[PYTHON_GENERATIONS];
	__u32 gc_collecting_interp;  /* int at interp + offset: 1 while collecting; 0: see next */
	__u32 gc_collecting_runtime; /* 3.8: int at _PyRuntime + offset */
	/* long_lived_total, Py_ssize_t: objects left by the last full collection; from the same
	 * base as gc_collecting_*; 0: not known */
	__u32 gc_long_lived;

	/*
	 * The innermost frame: *(void **)(tstate + tstate_frame), or where tstate_cframe is not 0
	 * *(void **)(*(void **)(tstate + tstate_cframe) + tstate_frame).
	 */
	__u32 tstate_cframe;
	__u32 tstate_frame;
	__u32 frame_previous;
	__u32 frame_code;      /* pointer, to be masked with ~frame_code_tags */
	__u32 frame_code_tags; /* 3.14+: tag bits, not part of the address */
	__u32 frame_ip;	       /* see ip_kind */
	__u32 frame_owner;     /* 1 byte, see frame_owner_internal */

	__u32 code_filename;
	__u32 code_name;
	__u32 code_qualname; /* 0: not before 3.11 */
	__u32 code_firstlineno;
	__u32 code_lines;    /* pointer to a bytes object, see lines_kind */
	__u32 code_version;  /* int, unique per code object, or 0; offset 0: no such member */
	__u32 code_bytecode; /* where PYTHON_IP_POINTER counts from; 0: not before 3.11 */

	__u32 unicode_length;
	__u32 unicode_state;
	__u32 unicode_ascii_data;   /* characters of a compact ASCII string */
	__u32 unicode_compact_data; /* characters of a compact string that is not ASCII */
	__u32 bytes_size;
	__u32 bytes_data;
};

#endif
