/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Code objects that stay what they are. Up to 3.11 nothing in a code object tells it from its
 * successor at the same address but what its pointers lead to: its name, its file's name, its
 * lines. Reading those of each frame, cold as they are, takes more time than the frames. A function
 * of a server lives as long as the server, so what was the same at many looks over some seconds is
 * looked at in full ten times a second only, as long as the object itself is the same, word by
 * word.
 *
 * What this takes for granted: a code object that was there for SETTLED_NS does not die and have a
 * successor at its address that is alike in all its numbers and pointers, within SETTLED_TRUST_NS
 * of a full look. Where code of the same shape comes and goes (exec() in a loop), it is seen to,
 * and that address is looked at in full each time.
 */
#ifndef UNDERSPAN_PYTHON_SETTLED_BPF_H
#define UNDERSPAN_PYTHON_SETTLED_BPF_H

#include "python.bpf.h"

enum {
	PYTHON_SETTLED_PLACES = 4096, /* a power of two */
	SETTLED_LOOKS = 32,
	SETTLED_CHANGES = 4, /* of one address and shape: it never settles */
};
#define SETTLED_NS	  5000000000ULL
#define SETTLED_TRUST_NS  100000000ULL
#define SETTLED_FORGET_NS 1000000000ULL /* then another one may have its place */

struct python_settled {
	__u64 code;
	__u32 tgid, check; /* python_code_check() */
	__u64 shape;	   /* of the object alone */
	__u64 since_ns, seen_ns;
	__u32 looks, changes;
	__u64 sum; /* of the rest: two CPUs may write at once */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PYTHON_SETTLED_PLACES);
	__type(key, __u32);
	__type(value, struct python_settled);
} python_settled_codes SEC(".maps");

static __always_inline __u64 settled_sum(const struct python_settled *s)
{
	return s->code ^ s->shape ^ s->since_ns ^ s->seen_ns ^
	       ((__u64)s->looks << 48 | (__u64)s->changes << 40) ^
	       ((__u64)s->tgid << 32 | s->check);
}

/* Where this code object has its place, what stands there in *ret; all 0: nothing, or torn. */
static __always_inline struct python_settled *settled_find(__u32 tgid, __u64 code,
							   struct python_settled *ret)
{
	__u32 at = python_known_at(code ^ (__u64)tgid << 40, PYTHON_SETTLED_PLACES);
	struct python_settled *place = bpf_map_lookup_elem(&python_settled_codes, &at);

	if (!place)
		return NULL;
	*ret = *place;
	barrier();
	if (ret->sum != settled_sum(ret))
		__builtin_memset(ret, 0, sizeof(*ret));
	return place;
}

/* The shape of a process's own: see code_shape(). */
static __always_inline bool settled_is(const struct python_settled *s, __u64 code, __u64 shape)
{
	return s->code == code && s->shape == shape;
}

static __always_inline bool settled_trusted(const struct python_settled *s, __u64 now)
{
	return s->looks >= SETTLED_LOOKS && s->seen_ns - s->since_ns >= SETTLED_NS &&
	       now - s->seen_ns < SETTLED_TRUST_NS;
}

/* It was looked at in full. `known` is what settled_find() gave. */
static __always_inline void settled_seen(struct python_settled *place, struct python_settled *known,
					 __u32 tgid, __u64 code, __u64 shape, __u32 check,
					 __u64 now)
{
	if (!settled_is(known, code, shape)) {
		if (known->code && now - known->seen_ns < SETTLED_FORGET_NS &&
		    (known->code != code || known->tgid != tgid))
			return; /* the place is taken */
		*known = (struct python_settled){
			.code = code, .tgid = tgid, .shape = shape, .check = check, .since_ns = now
		};
	} else if (known->check != check) {
		known->check = check;
		known->since_ns = now;
		known->looks = 0;
		if (known->changes < SETTLED_CHANGES)
			known->changes++;
	} else if (known->looks < SETTLED_LOOKS && known->changes < SETTLED_CHANGES) {
		known->looks++;
	}
	known->seen_ns = now;
	known->sum = settled_sum(known);
	*place = *known;
}

#endif
