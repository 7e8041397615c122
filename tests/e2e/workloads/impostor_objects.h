/* SPDX-License-Identifier: Apache-2.0 */
/* CPython's runtime and objects, as an impostor lays them out: symbols, dicts, code, frames. */
#ifndef UNDERSPAN_WORKLOADS_IMPOSTOR_OBJECTS_H
#define UNDERSPAN_WORKLOADS_IMPOSTOR_OBJECTS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MINOR
#define MINOR 11
#endif

/* Offsets of 3.11, also described by this program's 3.13 where 3.13 describes them. */
enum {
	HEAD = MINOR >= 13 ? 600 : 40, /* in the runtime */
	GIL = 360, /* in the runtime; 3.13: a pointer in the interpreter state */
	GIL_HOLDER = 8,
	GIL_LOCKED = 16,
	GIL_SWITCHES = 24,
	GIL_COND = 32,
	INTERP_NEXT = 0,
	INTERP_THREADS = 16,
	INTERP_GC = 648,
	INTERP_STATS = 776,
	INTERP_COLLECTING = 848,
	INTERP_MODULES = 888,
	TSTATE_NEXT = 8,
	TSTATE_INTERP = 16,
	TSTATE_CFRAME = 56,
	TSTATE_IDENT = 152,
	TSTATE_TID = 160,
	FRAME_CODE = 32,
	FRAME_PREVIOUS = 48,
	FRAME_IP = 56,
	FRAME_OWNER = 69,
	CODE_LINE = 72,
	CODE_FILE = 112,
	CODE_NAME = 120,
	CODE_QUALNAME = 128,
	CODE_LINES = 136,
	CODE_BYTES = 184,
	STR_LENGTH = 16,
	STR_STATE = 32,
	STR_DATA = MINOR >= 13 ? 40 : 48,
	BYTES_SIZE = 16,
	BYTES_DATA = 32,
	MEMORY = 4096,
};

struct block {
	_Alignas(16) char at[MEMORY];
};

#define VERSION ((uint64_t)(3 << 24 | MINOR << 16 | 2 << 8 | 0xf0))
#if MINOR >= 13
#define COOKIE 0x7970677562656478 /* "xdebugpy" */
__attribute__((section(".data"))) struct {
	uint64_t words[73];
	char rest[16384];
} _PyRuntime = { {
	COOKIE,
	VERSION,
	0,
	16384,
	0,
	HEAD,
	0,
	0,
	[8] = INTERP_NEXT,
	INTERP_THREADS,
	INTERP_GC,
	INTERP_MODULES,
	[14] = GIL,
	[21] = TSTATE_NEXT,
	TSTATE_INTERP,
	TSTATE_CFRAME,
	TSTATE_IDENT,
	TSTATE_TID,
	[29] = FRAME_PREVIOUS,
	FRAME_CODE,
	FRAME_IP,
	[33] = FRAME_OWNER,
	[35] = CODE_FILE,
	CODE_NAME,
	CODE_QUALNAME,
	CODE_LINES,
	CODE_LINE,
	[43] = CODE_BYTES,
	[65] = BYTES_SIZE,
	BYTES_DATA,
	[68] = STR_STATE,
	STR_LENGTH,
	STR_DATA,
	[72] = 200,
} };
#else
char _PyRuntime[16384];
const uint64_t Py_Version = VERSION;
#endif

static struct block str_type, thread_type;

static void put(void *object, size_t offset, uint64_t value)
{
	memcpy((char *)object + offset, &value, sizeof(value));
}

static void *new(size_t size)
{
	void *memory = aligned_alloc(16, (size + 127) & ~(size_t)63);

	memset(memory, 0, (size + 127) & ~(size_t)63);
	put(memory, 0, 1); /* reference count */
	return memory;
}

/* Mapped but unused zero pages, followed by an unmapped page. */
static char *huge(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
}

/* ---- objects ---- */

static void *str(const char *text)
{
	char *s = new (STR_DATA + strlen(text) + 1);

	put(s, 8, (uint64_t)&str_type);
	put(s, STR_LENGTH, strlen(text));
	put(s, STR_STATE, 1 << 2 | 1 << 5 | 1 << 6);
	strcpy(s + STR_DATA, text);
	return s;
}

static void *number(uint64_t n)
{
	char *i = new (40);

	put(i, 16, MINOR >= 12 ? 2 << 3 : 2);
	put(i, 24, (n & 0x3fffffff) | n >> 30 << 32);
	return i;
}

/* With spare entries; `hashed`: integer keys, equal to their hashes. */
static char *dict(int hashed)
{
	char *d = new (64), *keys = new (2048);

	put(d, 8, (uint64_t)&thread_type);
	put(d, 32, (uint64_t)keys);
	keys[9] = 5;
	keys[10] = hashed ? 0 : 1;
	return d;
}

static void set(char *d, uint64_t hash, void *key, void *value)
{
	char *keys = (char *)*(uint64_t *)(d + 32), *entry;
	int hashed = keys[10] == 0;
	uint64_t n = (*(uint64_t *)(keys + 24))++;

	entry = keys + 32 + 32 + n * (hashed ? 24 : 16);
	if (hashed)
		put(entry, 0, hash);
	put(entry, hashed ? 8 : 0, (uint64_t)key);
	put(entry, hashed ? 16 : 8, (uint64_t)value);
	(*(uint64_t *)(d + 16))++;
}

/* A Thread instance: the pointer to its attribute dict is before the object. */
static void *thread(const char *name, uint64_t tid)
{
	char *memory = new (128), *attributes = dict(0);

	memset(memory, 0, 16);
	put(memory, 40, (uint64_t)attributes);
	put(memory + 64, 0, 1);
	put(memory + 64, 8, (uint64_t)&thread_type);
	set(attributes, 0, str("_name"), str(name));
	set(attributes, 0, str("_native_id"), number(tid));
	return memory + 64;
}

static void *code(const char *name, const char *file, uint64_t line)
{
	char *c = new (512), *lines = new (64);

	put(c, 8, (uint64_t)&thread_type);
	put(c, CODE_LINE, line);
	put(c, CODE_FILE, (uint64_t)str(file));
	put(c, CODE_NAME, (uint64_t)str(name));
	put(c, CODE_QUALNAME, (uint64_t)str(name));
	put(c, CODE_LINES, (uint64_t)lines);
	put(lines, BYTES_SIZE, 2); /* a single entry: 8 code units of the first line */
	lines[BYTES_DATA] = (char)(0x80 | 10 << 3 | 7);
	return c;
}

static void *frame(void *of_code, void *previous)
{
	char *f = new (128);

	put(f, FRAME_CODE, (uint64_t)of_code);
	put(f, FRAME_PREVIOUS, (uint64_t)previous);
	put(f, FRAME_IP, (uint64_t)of_code + CODE_BYTES + 4);
	return f;
}

#endif
