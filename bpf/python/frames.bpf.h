/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks Python frames with plain reads of the current process's memory: first all frames of a
 * stack, then the fingerprints of their code objects. User space resolves the names.
 */
#ifndef UNDERSPAN_PYTHON_FRAMES_BPF_H
#define UNDERSPAN_PYTHON_FRAMES_BPF_H

#include "python/interpreter.bpf.h"
#include "python/code_cache.bpf.h"
#include "python_stack.h"

enum { PYTHON_OBJECT_TYPE = 8 };

/*
 * Since 3.11 the frames of a thread lie side by side in a data stack: a read fetches the block
 * around the wanted frame, but never a page without a wanted frame. All other objects are scattered
 * and read alone: their neighbours would be cache misses.
 */
enum {
	PYTHON_BLOCK = 1024,
	PYTHON_OBJECT_MAX = 256, /* an object that begins in the block may end behind the block */
	PYTHON_BLOCKS = 4,	 /* a power of two */
	PYTHON_PAGE = 4096,	 /* smallest page size */
};
struct python_block {
	__u64 start;
	__u64 generation; /* python_walk.block_generation at the read; 0: incomplete */
	__u8 bytes[PYTHON_BLOCK + PYTHON_OBJECT_MAX + 8];
};

/* Number of walks that may be in progress on a CPU, see python/threads.bpf.h. */
#ifndef PYTHON_SLOTS
#define PYTHON_SLOTS 1
#endif
enum { PYTHON_BLOCKS_OF_CPU = PYTHON_SLOTS * PYTHON_BLOCKS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PYTHON_BLOCKS_OF_CPU);
	__type(key, __u32);
	__type(value, struct python_block);
} python_blocks SEC(".maps");

/*
 * Cache slots of a walk, for code objects and for file names. An entry is valid while `generation`
 * is unchanged: walk.generation is incremented whenever a thread of the process may have run.
 * Afterwards the object is read again, and only the content behind its pointers may come from the
 * cache of stable code (python/code_cache.bpf.h).
 */
struct python_code_slot {
	__u64 code, layout;   /* see code_layout() */
	__u64 stable_read_ns; /* time of the last full read, if stable then */
	__u32 check, generation;
};
struct python_file_slot {
	__u64 object, length, hash, generation;
};
enum { PYTHON_CODE_SLOTS = 128, PYTHON_FILE_SLOTS = 16 }; /* powers of two */

/* Scratch space: programs that walk have little BPF stack left. */
struct python_scratch {
	struct python_code_fingerprint fingerprint;
	struct python_frame frame;
	struct code_cache_entry stable;
	__u8 object[PYTHON_OBJECT_MAX + 8];
	struct python_code_slot codes[PYTHON_CODE_SLOTS];
	struct python_file_slot files[PYTHON_FILE_SLOTS];
};

/* A stack as kept in maps, keyed by a hash of the frames. */
struct python_stack {
	struct python_stack_info info;
	__u32 pad;
	struct python_frame frames[PYTHON_STACK_MAX];
};

/* The state of a walk; in a map, because too big for the BPF stack. */
struct python_walk {
	__u64 ident;  /* of the thread, see task_ident(); 0: unknown */
	__u64 tstate; /* PyThreadState to walk; 0: none */
	__u64 frame;  /* next frame to read */
	__u32 ns_tid, binary, tgid;
	__u32 generation;	/* incremented whenever threads may have run; starts at 1 */
	__u64 block_generation; /* blocks of an older generation are stale; starts at 1 */
	__u32 shown;		/* frames with Python code */
	__u32 native;		/* the thread has no PyThreadState */
	__u32 pad;
	__u64 hash;   /* of the frames */
	__u64 now;    /* start of the walk, ns */
	__u64 next;   /* PyThreadState to compare next: see python_find_tstate() */
	__u64 unread; /* not 0: the threads' lists could not be read, or have changed */
	struct python_scratch scratch;
	struct python_stack stack;
};

/* The PyThreadState of the current thread, which must hold the given GIL. */
static __always_inline __u64 python_gil_holder(const struct python_offsets *o, __u64 gil)
{
	return gil ? read_user_u64(gil + o->gil_last_holder) : 0;
}

/*
 * Reads `size` bytes (less than PYTHON_OBJECT_MAX) of the process's memory; NULL when unreadable.
 * The next call overwrites the buffer.
 */
static __always_inline const __u8 *python_object(struct python_walk *walk, __u64 address,
						 __u32 size)
{
	__u8 *object = walk->scratch.object;

	return bpf_probe_read_user(object, size & (PYTHON_OBJECT_MAX - 1), (void *)address)
		       ? NULL
		       : object;
}

/* The same, through the block cache: for frames, which lie side by side. */
static __always_inline const __u8 *python_object_in_block(struct python_walk *walk, __u32 slot,
							  __u64 address, __u32 size)
{
	__u64 start = address & ~(__u64)(PYTHON_BLOCK - 1);
	__u32 at = address & (PYTHON_BLOCK - 1), n = PYTHON_BLOCK + PYTHON_OBJECT_MAX;
	__u32 index = slot * PYTHON_BLOCKS + cache_slot(start, PYTHON_BLOCKS);
	struct python_block *block = bpf_map_lookup_elem(&python_blocks, &index);

	if (!block)
		return NULL;
	if ((address & (PYTHON_PAGE - 1)) + size > PYTHON_PAGE)
		return python_object(walk, address, size);
	if (block->start == start && block->generation == walk->block_generation)
		return block->bytes + at;
	block->generation = 0;
	if ((start & (PYTHON_PAGE - 1)) == PYTHON_PAGE - PYTHON_BLOCK)
		n = PYTHON_BLOCK;
	if (bpf_probe_read_user(block->bytes, n, (void *)start))
		return NULL;
	block->start = start;
	block->generation = walk->block_generation;
	return block->bytes + at;
}

/* Members by offset. The masks satisfy the verifier, and bound offsets from an untrusted file. */
static __always_inline __u64 member_u64(const __u8 *object, __u32 offset)
{
	return *(__u64 *)(object + (offset & (PYTHON_OBJECT_MAX - 1)));
}

static __always_inline __u32 member_u32(const __u8 *object, __u32 offset)
{
	return *(__u32 *)(object + (offset & (PYTHON_OBJECT_MAX - 1)));
}

static __always_inline void read_text_fingerprint(const struct python_offsets *o,
						  struct python_walk *walk, __u64 object,
						  __u64 *ret_length, __u64 *ret_hash)
{
	const struct python_str_head *head;
	__u64 hash = 0, length = 0;

	head = (const void *)python_object(walk, object + o->unicode_length, sizeof(*head));
	if (head) {
		length = head->length;
		hash = head->hash;
		if (hash == (__u64)-1)
			hash = read_user_u64(python_text_end(o, object, head));
	}
	*ret_length = length;
	*ret_hash = hash;
}

static __always_inline void read_file_fingerprint(const struct python_offsets *o,
						  struct python_walk *walk)
{
	struct python_code_fingerprint *fingerprint = &walk->scratch.fingerprint;
	__u32 at = cache_slot(fingerprint->filename, PYTHON_FILE_SLOTS);
	struct python_file_slot *entry = &walk->scratch.files[at];

	if (entry->object != fingerprint->filename || entry->generation != walk->generation) {
		entry->object = fingerprint->filename;
		entry->generation = walk->generation;
		read_text_fingerprint(o, walk, fingerprint->filename, &entry->length, &entry->hash);
	}
	fingerprint->filename_length = entry->length;
	fingerprint->filename_hash = entry->hash;
}

/*
 * A hash of all numbers and pointers of a code object that never change, and of the process: for
 * code up to 3.11. Only compared for equality, so the bits are not mixed as in python_mix().
 */
static __always_inline __u64 code_layout(const struct python_offsets *o, const __u8 *object,
					 __u32 tgid)
{
	enum { FIRST = PYTHON_OBJECT_TYPE, WORDS = 4, REST_MAX = 12 };
	const __u64 factor = 0x9e3779b97f4a7c15ULL;
	__u64 layout = tgid;
	__u32 at = o->code_firstlineno & ~7U;

	for (int i = 0; i < WORDS; i++)
		layout = (layout + member_u64(object, FIRST + 8 * i)) * factor;
	for (int i = 0; i < REST_MAX && at <= o->code_lines; i++, at += 8)
		layout = (layout + member_u64(object, at)) * factor;
	return layout;
}

/* Reads the content behind a code object's pointers into walk->scratch.fingerprint. */
static __always_inline void read_content_fingerprint(const struct python_offsets *o,
						     struct python_walk *walk)
{
	struct python_code_fingerprint *fingerprint = &walk->scratch.fingerprint;
	const struct python_bytes_head *lines;

	read_file_fingerprint(o, walk);
	read_text_fingerprint(o, walk, fingerprint->name, &fingerprint->name_length,
			      &fingerprint->name_hash);
	lines = (const void *)python_object(walk, fingerprint->lines + o->bytes_size,
					    sizeof(*lines));
	if (lines) {
		fingerprint->lines_size = lines->size;
		fingerprint->lines_begin = lines->begin;
	}
}

/* Reads the fingerprint of a code object into entry->check, 0 when unreadable. */
static __always_inline void read_code_check(const struct python_offsets *o, __u64 code,
					    struct python_walk *walk,
					    struct python_code_slot *entry)
{
	struct python_code_fingerprint *fingerprint = &walk->scratch.fingerprint;
	struct code_cache_entry *stable = &walk->scratch.stable, *stable_slot;
	bool same = entry->code == code;
	const __u8 *object;
	__u32 version;
	__u64 layout;

	entry->code = code;
	entry->generation = walk->generation;
	/* the line table is the last member that is read */
	object = python_object(walk, code, o->code_lines + 8);
	if (!object) {
		entry->check = entry->stable_read_ns = 0;
		return;
	}
	version = o->code_version ? member_u32(object, o->code_version) : 0;
	layout = version ? 0 : code_layout(o, object, walk->tgid);
	if (same && entry->layout == layout &&
	    walk->now - entry->stable_read_ns < CODE_CACHE_TTL_NS)
		return;
	entry->layout = layout;
	entry->stable_read_ns = 0;
	__builtin_memset(fingerprint, 0, sizeof(*fingerprint));
	fingerprint->type = member_u64(object, PYTHON_OBJECT_TYPE);
	fingerprint->filename = member_u64(object, o->code_filename);
	fingerprint->name = member_u64(object, o->code_name);
	fingerprint->lines = member_u64(object, o->code_lines);
	fingerprint->firstlineno = member_u32(object, o->code_firstlineno);
	fingerprint->version = version;
	if (version) {
		entry->check = python_code_check(fingerprint);
		return;
	}
	stable_slot = code_cache_find(walk->tgid, code, stable);
	if (code_cache_matches(stable, code, layout) && code_cache_valid(stable, walk->now)) {
		entry->check = stable->check;
		entry->stable_read_ns = stable->read_ns;
		return;
	}
	read_content_fingerprint(o, walk);
	entry->check = python_code_check(fingerprint);
	if (!stable_slot)
		return;
	code_cache_store(stable_slot, stable, walk->tgid, code, layout, entry->check, walk->now);
	if (code_cache_matches(stable, code, layout) && code_cache_valid(stable, walk->now))
		entry->stable_read_ns = walk->now;
}

static __always_inline __u32 code_check(const struct python_offsets *o, __u64 code,
					struct python_walk *walk)
{
	struct python_code_slot *entry = &walk->scratch.codes[cache_slot(code, PYTHON_CODE_SLOTS)];

	if (entry->code != code || entry->generation != walk->generation)
		read_code_check(o, code, walk, entry);
	return entry->check;
}

/* True for a frame of the interpreter itself, whose code member is not a code object. */
static __always_inline bool frame_is_internal(const struct python_offsets *o, __u8 owner)
{
	return o->frame_owner_internal && owner >= o->frame_owner_internal;
}

/*
 * Reads the frame at walk->frame without the fingerprint, and advances to the caller's frame.
 * False: unreadable ("<unread>"), and the walk ends.
 */
static __always_inline bool python_read_frame(const struct python_offsets *o,
					      struct python_walk *walk, __u32 slot,
					      struct python_frame *ret)
{
	/* exactly the size of a frame: the memory may end there */
	__u32 size = o->frame_owner ? o->frame_owner + 1 : o->frame_ip + 4;
	const __u8 *frame = o->frame_owner ? python_object_in_block(walk, slot, walk->frame, size)
					   : python_object(walk, walk->frame, size);
	__u64 code, ip;
	__u8 owner = 0;

	ret->code = ret->ip = ret->check = 0;
	walk->frame = 0;
	if (!frame)
		return false;
	code = member_u64(frame, o->frame_code) & ~(__u64)o->frame_code_tags;
	ip = member_u64(frame, o->frame_ip);
	walk->frame = member_u64(frame, o->frame_previous);
	if (o->ip_kind == PYTHON_IP_POINTER)
		ip -= code;
	else
		ip = (__u32)ip;
	if (o->frame_owner)
		owner = frame[o->frame_owner & (PYTHON_OBJECT_MAX - 1)];
	ret->code = (code & ~(__u64)PYTHON_FRAME_OWNER) | (owner & PYTHON_FRAME_OWNER);
	ret->ip = ip < PYTHON_FRAME_NO_IP ? ip : PYTHON_FRAME_NO_IP;
	return true;
}

/* Adds the fingerprint of the code object to a frame that was read. */
static __always_inline void python_check_frame(const struct python_offsets *o,
					       struct python_walk *walk, struct python_frame *frame)
{
	if (frame->code && !frame_is_internal(o, frame->code & PYTHON_FRAME_OWNER)) {
		frame->check = code_check(o, frame->code & ~(__u64)PYTHON_FRAME_OWNER, walk);
		walk->shown++;
	}
	walk->hash = python_mix(walk->hash, frame->code);
	walk->hash = python_mix(walk->hash, (__u64)frame->check << 32 | frame->ip);
}

static __always_inline __u64 python_innermost_frame(const struct python_offsets *o, __u64 tstate)
{
	if (o->tstate_cframe)
		tstate = read_user_u64(tstate + o->tstate_cframe);
	return read_user_u64(tstate + o->tstate_frame);
}

/*
 * Begins the walk of walk->tstate. The program then takes each frame with a global function, which
 * the verifier explores once instead of once per frame.
 */
static __always_inline void python_walk_begin(const struct python_offsets *o,
					      struct python_walk *walk)
{
	walk->stack.info = (struct python_stack_info){};
	walk->hash = 0;
	walk->shown = 0;
	walk->block_generation++;
	walk->now = bpf_ktime_get_ns();
	walk->tgid = current_tgid();
	walk->frame = walk->tstate ? python_innermost_frame(o, walk->tstate) : 0;
}

/* Copies a stack; `frames` has room for PYTHON_STACK_MAX. */
static __always_inline void python_copy_stack(const struct python_stack *stack,
					      struct python_frame *frames,
					      struct python_stack_info *info)
{
	__u32 n = *(volatile __u16 *)&stack->info.n;

	if (n > PYTHON_STACK_MAX)
		n = PYTHON_STACK_MAX;
	barrier_var(n);
	if (n > PYTHON_STACK_MAX)
		return;
	info->n = n;
	info->cut = stack->info.cut;
	bpf_probe_read_kernel(frames, n * sizeof(*frames), stack->frames);
}

#endif
