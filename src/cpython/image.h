/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Python executable or libpython: version, address of the runtime state, start and end of
 * collections. All data are read from the file (untrusted input); files without the data are
 * refused with a reason, never guessed. Addresses *_va are the file's virtual addresses; a process
 * adds its load bias.
 */
#ifndef UNDERSPAN_CPYTHON_IMAGE_H
#define UNDERSPAN_CPYTHON_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "elf/probe_site.h"

/* How the bounds of a collection were found: value of ebpf_gc_pause.method. */
enum gc_method { GC_METHOD_NONE, GC_METHOD_USDT, GC_METHOD_SYMBOL, GC_METHOD_SCAN };

enum {
	PYTHON_MAX_GC_ENTRIES = 16,
	PYTHON_MAX_GC_EXITS = 112,
	PYTHON_BUILD_ID_MAX = 32,
	PYTHON_MICRO_UNKNOWN = 255,
};

struct python_image {
	uint8_t build_id[PYTHON_BUILD_ID_MAX];
	uint8_t build_id_len;	      /* 0: the file has none */
	uint16_t machine;	      /* EM_X86_64 or EM_AARCH64 */
	uint8_t major, minor, micro;  /* micro: PYTHON_MICRO_UNKNOWN if unknown */
	bool free_threaded;	      /* a Py_GIL_DISABLED build */
	uint64_t load_va;	      /* virtual address of file offset 0 */
	uint64_t runtime_va;	      /* &_PyRuntime */
	uint64_t runtime_file_offset; /* file offset of _PyRuntime; 0: in .bss */

	/*
	 * A collection starts at a gc_entry and ends at the gc_exit with the same stack pointer.
	 * USDT: sites of gc__start and gc__done. Otherwise the first instruction of the GC function
	 * and of each clone, and all exits: returns, tail calls and indirect jumps (often switches,
	 * told apart by the stack pointer). Includes calls that return without collecting, told
	 * apart by generation_stats. `arg` of a gc__start is the generation, of a gc__done what was
	 * collected and what could not be.
	 */

	enum gc_method gc_method;
	struct probe_site gc_entry[PYTHON_MAX_GC_ENTRIES];
	struct probe_site gc_exit[PYTHON_MAX_GC_EXITS];
	uint32_t n_gc_entry, n_gc_exit;
	const char *gc_symbols; /* GC_METHOD_SYMBOL: source of the name; static text */
	struct why gc_why;	/* reason of GC_METHOD_NONE */
};

#endif
