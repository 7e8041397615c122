/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A cache of stable code objects. Up to 3.11 a code object has no version number: only the content
 * behind its pointers (name, file name, lines) distinguishes a code object from its successor at
 * the same address. Reading that cold memory for each frame takes longer than walking the frames.
 * Functions of a server live as long as the server, so a code object with the same content in many
 * reads over some seconds counts as stable. The content of a stable code object is read again only
 * ten times a second, while the object's own words are compared on every walk.
 *
 * Assumption: a code object that was there for CODE_STABLE_NS is not replaced, within
 * CODE_CACHE_TTL_NS of a full read, by a code object at the same address with identical numbers and
 * pointers. Where code with the same layout comes and goes (exec() in a loop), the cache sees the
 * changes and the address never becomes stable.
 */
#ifndef UNDERSPAN_PYTHON_CODE_CACHE_BPF_H
#define UNDERSPAN_PYTHON_CODE_CACHE_BPF_H

#include "python/interpreter.bpf.h"

enum {
	CODE_CACHE_SLOTS = 4096, /* a power of two */
	CODE_STABLE_READS = 32,
	CODE_CHANGES_MAX = 4, /* of the same address and layout: afterwards never stable */
};
#define CODE_STABLE_NS	  5000000000ULL
#define CODE_CACHE_TTL_NS 100000000ULL
/* an entry this old may be replaced by a different code object */
#define CODE_CACHE_EVICT_NS 1000000000ULL

struct code_cache_entry {
	__u64 code;
	__u32 tgid, check; /* python_code_check() */
	__u64 layout;	   /* see code_layout() */
	__u64 since_ns, read_ns;
	__u32 reads, changes;
	__u64 checksum; /* XOR of the members above: two CPUs may write at the same time */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CODE_CACHE_SLOTS);
	__type(key, __u32);
	__type(value, struct code_cache_entry);
} python_code_cache SEC(".maps");

static __always_inline __u64 code_cache_checksum(const struct code_cache_entry *s)
{
	return s->code ^ s->layout ^ s->since_ns ^ s->read_ns ^
	       ((__u64)s->reads << 48 | (__u64)s->changes << 40) ^
	       ((__u64)s->tgid << 32 | s->check);
}

/*
 * Returns the cache slot of a code object and a copy in *ret; zeros: empty, or torn by a second
 * CPU.
 */
static __always_inline struct code_cache_entry *code_cache_find(__u32 tgid, __u64 code,
								struct code_cache_entry *ret)
{
	__u32 at = cache_slot(code ^ (__u64)tgid << 40, CODE_CACHE_SLOTS);
	struct code_cache_entry *slot = bpf_map_lookup_elem(&python_code_cache, &at);

	if (!slot)
		return NULL;
	*ret = *slot;
	barrier();
	if (ret->checksum != code_cache_checksum(ret))
		__builtin_memset(ret, 0, sizeof(*ret));
	return slot;
}

/* Is the entry that of `code`? `layout` includes the process, see code_layout(). */
static __always_inline bool code_cache_matches(const struct code_cache_entry *s, __u64 code,
					       __u64 layout)
{
	return s->code == code && s->layout == layout;
}

static __always_inline bool code_cache_valid(const struct code_cache_entry *s, __u64 now)
{
	return s->reads >= CODE_STABLE_READS && s->read_ns - s->since_ns >= CODE_STABLE_NS &&
	       now - s->read_ns < CODE_CACHE_TTL_NS;
}

/* Records a full read. `entry` is the copy from code_cache_find(). */
static __always_inline void code_cache_store(struct code_cache_entry *slot,
					     struct code_cache_entry *entry, __u32 tgid, __u64 code,
					     __u64 layout, __u32 check, __u64 now)
{
	if (!code_cache_matches(entry, code, layout)) {
		if (entry->code && now - entry->read_ns < CODE_CACHE_EVICT_NS &&
		    (entry->code != code || entry->tgid != tgid))
			return; /* the slot is taken */
		*entry = (struct code_cache_entry){ .code = code,
						    .tgid = tgid,
						    .layout = layout,
						    .check = check,
						    .since_ns = now };
	} else if (entry->check != check) {
		entry->check = check;
		entry->since_ns = now;
		entry->reads = 0;
		if (entry->changes < CODE_CHANGES_MAX)
			entry->changes++;
	} else if (entry->reads < CODE_STABLE_READS && entry->changes < CODE_CHANGES_MAX) {
		entry->reads++;
	}
	entry->read_ns = now;
	entry->checksum = code_cache_checksum(entry);
	*slot = *entry;
}

#endif
