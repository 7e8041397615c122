// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets into CPython's structures. Up to 3.12 from a table per minor version, within which
 * offsets are constant. Since 3.13 from _Py_DebugOffsets at the start of _PyRuntime, whose layout
 * changes with every minor version.
 */
#include "cpython/offsets.h"

#include <stddef.h>
#include <string.h>

#include "python_gil.h"

#include "elf/elf_file.h"
#include "python_offsets.h"

/* struct gc_generation_stats up to 3.14: three Py_ssize_t. */
enum { GC_STATS_SIZE = 24, GC_COLLECTIONS = 0, GC_COLLECTED = 8, GC_UNCOLLECTABLE = 16 };

/* Of struct _gc_runtime_state up to 3.13; `garbage` and `callbacks` are in between. */
enum { LONG_LIVED_AFTER_COLLECTING = 24 };

/*
 * ---- 3.8 to 3.12 ----
 *
 * Both machines are LP64. Only pthread_mutex_t differs, 8 bytes longer on arm64: no member read
 * here follows a mutex. tests/e2e/test_offsets.py compiles each version's headers for both.
 */

/* From debug information of builds of each version, compared with the headers. */
static const struct python_offsets version_table[] = {
	{
		.minor = 8,
		.gil_kind = PYTHON_GIL_IN_RUNTIME,
		.gc_stats_kind = PYTHON_GC_STATS_IN_RUNTIME,
		.ip_kind = PYTHON_IP_BYTES,
		.lines_kind = PYTHON_LINES_LNOTAB,
		.runtime_interpreters_head = 32,
		.interp_threads_head = 8,
		.interp_modules = 56,
		.tstate_thread_id = 176,
		.tstate_context = 240,
		.gil = 1152,
		.gc_stats = 472,
		.gc_collecting_runtime = 544,
		.tstate_frame = 24,
		.frame_previous = 24,
		.frame_code = 32,
		.frame_ip = 104,
		.code_filename = 104,
		.code_name = 112,
		.code_firstlineno = 40,
		.code_lines = 120,
		.unicode_ascii_data = 48,
		.unicode_compact_data = 72,
	},
	{
		.minor = 9,
		.gil_kind = PYTHON_GIL_IN_RUNTIME,
		.gc_stats_kind = PYTHON_GC_STATS_OF_INTERP,
		.ip_kind = PYTHON_IP_BYTES,
		.lines_kind = PYTHON_LINES_LNOTAB,
		.runtime_interpreters_head = 32,
		.interp_threads_head = 8,
		.interp_modules = 856,
		.tstate_thread_id = 176,
		.tstate_context = 240,
		.gil = 352,
		.gc_stats = 616 + 128,
		.gc_collecting_interp = 616 + 200,
		.tstate_frame = 24,
		.frame_previous = 24,
		.frame_code = 32,
		.frame_ip = 104,
		.code_filename = 104,
		.code_name = 112,
		.code_firstlineno = 40,
		.code_lines = 120,
		.unicode_ascii_data = 48,
		.unicode_compact_data = 72,
	},
	{
		.minor = 10,
		.gil_kind = PYTHON_GIL_IN_RUNTIME,
		.gc_stats_kind = PYTHON_GC_STATS_OF_INTERP,
		.ip_kind = PYTHON_IP_UNITS,
		.lines_kind = PYTHON_LINES_PAIRS,
		.runtime_interpreters_head = 32,
		.interp_threads_head = 8,
		.interp_modules = 856,
		.tstate_thread_id = 176,
		.tstate_context = 240,
		.gil = 352,
		.gc_stats = 616 + 128,
		.gc_collecting_interp = 616 + 200,
		.tstate_frame = 24,
		.frame_previous = 24,
		.frame_code = 32,
		.frame_ip = 96,
		.code_filename = 104,
		.code_name = 112,
		.code_firstlineno = 40,
		.code_lines = 120,
		.unicode_ascii_data = 48,
		.unicode_compact_data = 72,
	},
	{
		.minor = 11,
		.gil_kind = PYTHON_GIL_IN_RUNTIME,
		.gc_stats_kind = PYTHON_GC_STATS_OF_INTERP,
		.ip_kind = PYTHON_IP_POINTER,
		.lines_kind = PYTHON_LINES_LOCATION,
		.runtime_interpreters_head = 40,
		.interp_threads_head = 16,
		.interp_modules = 888,
		.tstate_thread_id = 152,
		.tstate_context = 224,
		.tstate_native_thread_id = 160,
		.gil = 360,
		.gc_stats = 648 + 128,
		.gc_collecting_interp = 648 + 200,
		.tstate_cframe = 56,
		.tstate_frame = 8,
		.frame_previous = 48,
		.frame_code = 32,
		.frame_ip = 56,
		.frame_owner = 69,
		.frame_owner_internal = 3,
		.code_filename = 112,
		.code_name = 120,
		.code_qualname = 128,
		.code_firstlineno = 72,
		.code_lines = 136,
		.code_bytecode = 184,
		.unicode_ascii_data = 48,
		.unicode_compact_data = 72,
	},
	{
		.minor = 12,
		.gil_kind = PYTHON_GIL_OF_INTERP,
		.gc_stats_kind = PYTHON_GC_STATS_OF_INTERP,
		.ip_kind = PYTHON_IP_POINTER,
		.lines_kind = PYTHON_LINES_LOCATION,
		.runtime_interpreters_head = 40,
		.interp_threads_head = 72,
		.interp_modules = 944,
		.tstate_thread_id = 136,
		.tstate_context = 208,
		.tstate_native_thread_id = 144,
		.gil = 384,
		.gc_stats = 112 + 128,
		.gc_collecting_interp = 112 + 200,
		.tstate_cframe = 56,
		.tstate_frame = 0,
		.frame_previous = 8,
		.frame_code = 0,
		.frame_ip = 56,
		.frame_owner = 70,
		.frame_owner_internal = 3,
		.code_filename = 112,
		.code_name = 120,
		.code_qualname = 128,
		.code_firstlineno = 68,
		.code_lines = 136,
		.code_version = 92,
		.code_bytecode = 192,
		.unicode_ascii_data = 40,
		.unicode_compact_data = 56,
	},
};

/* Offsets shared by all versions of the table. */
static void fill_common(struct python_offsets *o)
{
	o->interp_next = 0;
	o->tstate_next = 8;
	o->tstate_interp = 16;
	o->gc_stats_size = GC_STATS_SIZE;
	o->gc_collections = GC_COLLECTIONS;
	o->gc_collected = GC_COLLECTED;
	o->gc_uncollectable = GC_UNCOLLECTABLE;
	o->gc_long_lived = o->gc_collecting_interp + o->gc_collecting_runtime +
			   LONG_LIVED_AFTER_COLLECTING;
	o->unicode_length = 16;
	o->unicode_state = 32;
	o->bytes_size = 16;
	o->bytes_data = 32;
}

static int from_table(const struct python_image *image, struct python_offsets *ret, struct why *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(version_table); i++) {
		if (version_table[i].minor == image->minor) {
			*ret = version_table[i];
			fill_common(ret);
			return 0;
		}
	}
	return why_fail(why, ENOTSUP, "the layout of Python 3.%u is not known", image->minor);
}

/* ---- 3.13 and later: _Py_DebugOffsets ---- */

/* Words in use, in the order of 3.13; later versions add words. */
enum word {
	INTERPRETERS_HEAD,
	INTERP_NEXT,
	INTERP_THREADS_HEAD,
	INTERP_GC,
	INTERP_MODULES,
	INTERP_CEVAL_GIL,
	TSTATE_NEXT,
	TSTATE_INTERP,
	TSTATE_FRAME,
	TSTATE_THREAD_ID,
	TSTATE_NATIVE_THREAD_ID,
	FRAME_PREVIOUS,
	FRAME_EXECUTABLE,
	FRAME_INSTR_PTR,
	FRAME_OWNER,
	CODE_FILENAME,
	CODE_NAME,
	CODE_QUALNAME,
	CODE_LINETABLE,
	CODE_FIRSTLINENO,
	CODE_ADAPTIVE,
	BYTES_SIZE,
	BYTES_DATA,
	UNICODE_STATE,
	UNICODE_LENGTH,
	UNICODE_ASCII_SIZE,
	GC_COLLECTING,
	GC_RING_SIZE, /* 3.15 */
	GC_RING,      /* 3.15 */
	N_WORDS,
};

enum { DEBUG_OFFSETS_MAX_WORDS = 111 };

/* Index of each word in the array of 8-byte words, from the cookie on. */
struct debug_layout {
	uint8_t minor;
	uint8_t n_words; /* words in total */
	uint8_t index[N_WORDS];
};

static const struct debug_layout debug_layouts[] = {
	{ 13,
	  73,
	  { [INTERPRETERS_HEAD] = 5,
	    [INTERP_NEXT] = 8,
	    [INTERP_THREADS_HEAD] = 9,
	    [INTERP_GC] = 10,
	    [INTERP_MODULES] = 11,
	    [INTERP_CEVAL_GIL] = 14,
	    [TSTATE_NEXT] = 21,
	    [TSTATE_INTERP] = 22,
	    [TSTATE_FRAME] = 23,
	    [TSTATE_THREAD_ID] = 24,
	    [TSTATE_NATIVE_THREAD_ID] = 25,
	    [FRAME_PREVIOUS] = 29,
	    [FRAME_EXECUTABLE] = 30,
	    [FRAME_INSTR_PTR] = 31,
	    [FRAME_OWNER] = 33,
	    [CODE_FILENAME] = 35,
	    [CODE_NAME] = 36,
	    [CODE_QUALNAME] = 37,
	    [CODE_LINETABLE] = 38,
	    [CODE_FIRSTLINENO] = 39,
	    [CODE_ADAPTIVE] = 43,
	    [BYTES_SIZE] = 65,
	    [BYTES_DATA] = 66,
	    [UNICODE_STATE] = 68,
	    [UNICODE_LENGTH] = 69,
	    [UNICODE_ASCII_SIZE] = 70,
	    [GC_COLLECTING] = 72 } },
	{ 14,
	  95,
	  { [INTERPRETERS_HEAD] = 5,
	    [INTERP_NEXT] = 8,
	    [INTERP_THREADS_HEAD] = 9,
	    [INTERP_GC] = 11,
	    [INTERP_MODULES] = 12,
	    [INTERP_CEVAL_GIL] = 15,
	    [TSTATE_NEXT] = 24,
	    [TSTATE_INTERP] = 25,
	    [TSTATE_FRAME] = 26,
	    [TSTATE_THREAD_ID] = 27,
	    [TSTATE_NATIVE_THREAD_ID] = 28,
	    [FRAME_PREVIOUS] = 32,
	    [FRAME_EXECUTABLE] = 33,
	    [FRAME_INSTR_PTR] = 34,
	    [FRAME_OWNER] = 36,
	    [CODE_FILENAME] = 40,
	    [CODE_NAME] = 41,
	    [CODE_QUALNAME] = 42,
	    [CODE_LINETABLE] = 43,
	    [CODE_FIRSTLINENO] = 44,
	    [CODE_ADAPTIVE] = 48,
	    [BYTES_SIZE] = 75,
	    [BYTES_DATA] = 76,
	    [UNICODE_STATE] = 78,
	    [UNICODE_LENGTH] = 79,
	    [UNICODE_ASCII_SIZE] = 80,
	    [GC_COLLECTING] = 82 } },
	{ 15,
	  111,
	  { [INTERPRETERS_HEAD] = 5,
	    [INTERP_NEXT] = 8,
	    [INTERP_THREADS_HEAD] = 9,
	    [INTERP_GC] = 11,
	    [INTERP_MODULES] = 12,
	    [INTERP_CEVAL_GIL] = 15,
	    [TSTATE_NEXT] = 24,
	    [TSTATE_INTERP] = 25,
	    [TSTATE_FRAME] = 26,
	    [TSTATE_THREAD_ID] = 30,
	    [TSTATE_NATIVE_THREAD_ID] = 31,
	    [FRAME_PREVIOUS] = 40,
	    [FRAME_EXECUTABLE] = 41,
	    [FRAME_INSTR_PTR] = 42,
	    [FRAME_OWNER] = 44,
	    [CODE_FILENAME] = 48,
	    [CODE_NAME] = 49,
	    [CODE_QUALNAME] = 50,
	    [CODE_LINETABLE] = 51,
	    [CODE_FIRSTLINENO] = 52,
	    [CODE_ADAPTIVE] = 56,
	    [BYTES_SIZE] = 87,
	    [BYTES_DATA] = 88,
	    [UNICODE_STATE] = 90,
	    [UNICODE_LENGTH] = 91,
	    [UNICODE_ASCII_SIZE] = 92,
	    [GC_COLLECTING] = 95,
	    [GC_RING_SIZE] = 97,
	    [GC_RING] = 98 } },
};

/* Upper bound of valid offsets. */
enum { MAX_OFFSET = 1 << 20 };

static int read_debug_offsets(const struct python_image *image, const struct debug_layout *layout,
			      int fd, uint32_t ret[N_WORDS], struct why *why)
{
	uint64_t words[DEBUG_OFFSETS_MAX_WORDS];
	size_t size = layout->n_words * sizeof(words[0]);

	if (!image->runtime_file_offset ||
	    pread(fd, words, size, (off_t)image->runtime_file_offset) != (ssize_t)size)
		return why_fail(why, EINVAL, "cannot read the offsets of Python 3.%u from the file",
				image->minor);
	if (memcmp(words, "xdebugpy", sizeof(words[0])) != 0 ||
	    words[1] >> 16 != (3U << 8 | layout->minor))
		return why_fail(why, EINVAL,
				"the offsets of Python 3.%u are not at the expected place",
				image->minor);
	if (words[2])
		return why_fail(why, ENOTSUP, "free-threaded Python 3.%u is not supported",
				image->minor);
	for (size_t i = 0; i < N_WORDS; i++) {
		uint64_t word = layout->index[i] ? words[layout->index[i]] : 0;

		if (word > MAX_OFFSET)
			return why_fail(why, EINVAL, "the offsets of Python 3.%u are not plausible",
					image->minor);
		ret[i] = (uint32_t)word;
	}
	return 0;
}

/*
 * 3.15 keeps records of the last collections in rings: 11 of the young, 3 of each older generation;
 * the index of the newest record follows each ring.
 */
static int fill_gc_ring(const uint32_t w[N_WORDS], struct python_offsets *o, struct why *why)
{
	enum { RECORD = 64, YOUNG = 11, OLD = 3, ALL_RINGS = 1120 };

	if (w[GC_RING_SIZE] != ALL_RINGS)
		return why_fail(why, ENOTSUP, "collection records of %u bytes are not known",
				w[GC_RING_SIZE]);
	o->gc_stats_kind = PYTHON_GC_STATS_RING;
	o->gc_stats = w[INTERP_GC] + w[GC_RING];
	o->gc_stats_size = RECORD;
	o->gc_collections = 16; /* after the times of start and stop */
	o->gc_collected = 24;
	o->gc_uncollectable = 32;
	for (uint32_t k = 0, at = 0; k < PYTHON_GENERATIONS; k++) {
		o->gc_ring_slots[k] = k ? OLD : YOUNG;
		o->gc_ring_start[k] = at;
		o->gc_ring_index[k] = at + o->gc_ring_slots[k] * RECORD;
		at = o->gc_ring_index[k] + 8; /* the byte, padded */
	}
	return 0;
}

/*
 * Where long_lived_total is after `collecting`, seen in builds of 3.13.0, 3.13.5, 3.13.18, 3.14.10
 * and 3.15.2. The incremental collector of 3.14.0 to 3.14.4 has none.
 */
static uint32_t long_lived_after_collecting(const struct python_image *image)
{
	enum { NO_INCREMENTAL = 5, UNKNOWN_MICRO = 255 };

	if (image->minor == 13)
		return LONG_LIVED_AFTER_COLLECTING;
	if (image->minor == 14)
		return image->micro >= NO_INCREMENTAL && image->micro != UNKNOWN_MICRO ? 48 : 0;
	return image->minor == 15 ? 40 : 0;
}

static int fill_gc(const struct python_image *image, const uint32_t w[N_WORDS],
		   struct python_offsets *o, struct why *why)
{
	o->gc_collecting_interp = w[INTERP_GC] + w[GC_COLLECTING];
	if (long_lived_after_collecting(image))
		o->gc_long_lived = o->gc_collecting_interp + long_lived_after_collecting(image);
	if (image->minor == 15)
		return fill_gc_ring(w, o, why);

	/*
	 * Before `collecting`, except for alignment; not part of the description. Same position in
	 * the incremental collector of 3.14.0-3.14.4.
	 */
	if (w[GC_COLLECTING] != (image->minor == 13 ? 200 : 192))
		return why_fail(why, ENOTSUP,
				"the collector's state of this Python 3.%u is not known",
				image->minor);
	o->gc_stats_kind = PYTHON_GC_STATS_OF_INTERP;
	o->gc_stats = w[INTERP_GC] + w[GC_COLLECTING] - PYTHON_GENERATIONS * GC_STATS_SIZE;
	o->gc_stats_size = GC_STATS_SIZE;
	o->gc_collections = GC_COLLECTIONS;
	o->gc_collected = GC_COLLECTED;
	o->gc_uncollectable = GC_UNCOLLECTABLE;
	return 0;
}

static int from_debug_offsets(const struct python_image *image, int fd, struct python_offsets *ret,
			      struct why *why)
{
	const struct debug_layout *layout = NULL;
	uint32_t w[N_WORDS];
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(debug_layouts); i++) {
		if (debug_layouts[i].minor == image->minor)
			layout = &debug_layouts[i];
	}
	if (!layout)
		return why_fail(why, ENOTSUP, "the layout of Python 3.%u is not known",
				image->minor);
	err = read_debug_offsets(image, layout, fd, w, why);
	if (err)
		return err;
	*ret = (struct python_offsets){
		.gil_kind = PYTHON_GIL_OF_INTERP,
		.ip_kind = PYTHON_IP_POINTER,
		.lines_kind = PYTHON_LINES_LOCATION,
		.frame_owner_internal = 3,
		.runtime_interpreters_head = w[INTERPRETERS_HEAD],
		.interp_next = w[INTERP_NEXT],
		.interp_threads_head = w[INTERP_THREADS_HEAD],
		.interp_modules = w[INTERP_MODULES],
		.tstate_next = w[TSTATE_NEXT],
		.tstate_interp = w[TSTATE_INTERP],
		.tstate_thread_id = w[TSTATE_THREAD_ID],
		.tstate_native_thread_id = w[TSTATE_NATIVE_THREAD_ID],
		.tstate_context = w[TSTATE_THREAD_ID] + 56, /* in the headers of 3.13 to 3.15 */
		.gil = w[INTERP_CEVAL_GIL],
		.tstate_frame = w[TSTATE_FRAME],
		.frame_previous = w[FRAME_PREVIOUS],
		.frame_code = w[FRAME_EXECUTABLE],
		.frame_code_tags = image->minor >= 14 ? 3 : 0,
		.frame_ip = w[FRAME_INSTR_PTR],
		.frame_owner = w[FRAME_OWNER],
		.code_filename = w[CODE_FILENAME],
		.code_name = w[CODE_NAME],
		.code_qualname = w[CODE_QUALNAME],
		.code_firstlineno = w[CODE_FIRSTLINENO],
		.code_lines = w[CODE_LINETABLE],
		/* 3.13 to 3.15: two members before co_filename */
		.code_version = w[CODE_FILENAME] - 20,
		.code_bytecode = w[CODE_ADAPTIVE],
		.unicode_length = w[UNICODE_LENGTH],
		.unicode_state = w[UNICODE_STATE],
		.unicode_ascii_data = w[UNICODE_ASCII_SIZE],
		/* after PyASCIIObject: length and pointer of the UTF-8 form */
		.unicode_compact_data = w[UNICODE_ASCII_SIZE] + 16,
		.bytes_size = w[BYTES_SIZE],
		.bytes_data = w[BYTES_DATA],
	};
	return fill_gc(image, w, ret, why);
}

int python_offsets_for(const struct python_image *image, int fd, struct python_offsets *ret,
		       struct why *why)
{
	struct python_offsets offsets;
	int err;

	if (image->minor >= 13)
		err = from_debug_offsets(image, fd, &offsets, why);
	else
		err = from_table(image, &offsets, why);
	if (err)
		return err;
	offsets.major = image->major;
	offsets.minor = image->minor;
	offsets.micro = image->micro;
	offsets.gil_last_holder = offsetof(struct python_gil, last_holder);
	offsets.gil_locked = offsetof(struct python_gil, locked);
	offsets.gil_cond = PYTHON_GIL_COND;
	*ret = offsets;
	return 0;
}

const char *python_offsets_method(const struct python_image *image)
{
	return image->minor >= 13 ? "described" : "table";
}
