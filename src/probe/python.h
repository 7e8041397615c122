/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one ELF file, a Python executable or libpython, offers to a tracer: its version, where
 * its runtime state lies, and where a collection begins and ends. Everything is found by looking
 * into the file (untrusted input); what cannot be found is refused with a sentence, never guessed.
 * Addresses named *_va are the file's own virtual addresses; a live process adds its load bias.
 */
#ifndef UNDERSPAN_PROBE_PYTHON_H
#define UNDERSPAN_PROBE_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

/* How the bounds of a collection were found; the value of ebpf_gc_pause.method. */
enum gc_method { GC_METHOD_NONE, GC_METHOD_USDT, GC_METHOD_SYMBOL, GC_METHOD_SCAN };

/* Where a probe finds an integer argument, as SDT notes and calling conventions say. */
enum arg_place { ARG_NONE, ARG_REGISTER, ARG_MEMORY, ARG_CONSTANT };
struct arg_spec {
	uint8_t place;	   /* enum arg_place */
	uint8_t reg_index; /* index of the 8-byte register in the kernel's struct pt_regs */
	uint8_t size;	   /* bytes: 4 or 8 */
	uint8_t is_signed;
	int64_t value; /* ARG_MEMORY: displacement to the register; ARG_CONSTANT: the value */
};

struct probe_site {
	uint64_t va;		 /* of the probed instruction */
	uint64_t file_offset;	 /* what perf_event_open wants for a uprobe */
	uint64_t ref_ctr_offset; /* file offset of the USDT semaphore; 0: none */
	struct arg_spec arg;	 /* gc__start: generation; gc__done: collected + uncollectable */
	uint8_t reason_reg; /* register with the _PyGC_Reason, as reg_index; 0: none is known */
};

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
	uint8_t major, minor, micro;  /* micro: PYTHON_MICRO_UNKNOWN where the file does not tell */
	bool free_threaded;	      /* a Py_GIL_DISABLED build */
	uint64_t load_va;	      /* where the file's first byte would lie */
	uint64_t runtime_va;	      /* &_PyRuntime */
	uint64_t runtime_file_offset; /* of the same; 0 when in .bss */

	/*
	 * A collection: it begins at a gc_entry and ends at the gc_exit with the same stack
	 * pointer. USDT: the sites of gc__start and gc__done. Otherwise the first instruction of
	 * the collecting function and of each of its clones, and all instructions that leave it:
	 * returns, tail calls and indirect jumps (which may be mere switches: the stack pointer
	 * tells). A collection that returns at once is among these; generation_stats tells.
	 */

	enum gc_method gc_method;
	struct probe_site gc_entry[PYTHON_MAX_GC_ENTRIES];
	struct probe_site gc_exit[PYTHON_MAX_GC_EXITS];
	uint32_t n_gc_entry, n_gc_exit;
	const char *gc_symbols; /* GC_METHOD_SYMBOL: where the name was found; static text */
	struct why gc_why;	/* why gc_method is GC_METHOD_NONE */
};

/*
 * Reads the ELF file behind `fd` (kept open, owned by the caller). `path_hint` is used for the
 * version when the file itself does not tell, and in messages; `host_pid` as elf_file.h has it.
 * Returns 0; -ENOENT when this is not a Python (no _PyRuntime: the normal answer, `why` unset);
 * -ENOTSUP for a Python that is refused, -EINVAL for a broken file, other -errno, with `why`.
 */
int python_image_read_of(uint32_t host_pid, int fd, const char *path_hint, struct python_image *ret,
			 struct why *why);
int python_image_read(int fd, const char *path_hint, struct python_image *ret, struct why *why);

/*
 * True when the ELF file behind `fd` asks the dynamic loader for a libpython, in which case the
 * interpreter is that library and not the executable. False for broken files.
 */
bool python_image_needs_libpython(int fd);

/*
 * Where this build keeps the state that probes read: from a table for 3.8 to 3.12, from what the
 * file itself describes since 3.13. `fd` is the file that `image` was read from.
 * -ENOTSUP with `why` for a build that no offsets are known for; `ret` is python_offsets.h.
 */
struct python_offsets;
int python_offsets_for(const struct python_image *image, int fd, struct python_offsets *ret,
		       struct why *why);

/* How they are known: "described" by the program itself, or by a "table" of versions. */
const char *python_offsets_method(const struct python_image *image);

#endif
