/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads Python objects of another process, CPython 3.8 to 3.15: strings, integers, dicts,
 * attributes of instances. All reads are bounded. -EINVAL: not an object of the expected type;
 * -ENOENT: absent.
 */
#ifndef UNDERSPAN_CPYTHON_OBJECTS_H
#define UNDERSPAN_CPYTHON_OBJECTS_H

#include <string.h>

#include "cpython/remote.h"

enum { OBJECT_TYPE = 8 }; /* offset of ob_type in the object header */

/* Loads a number from bytes read. */
static inline uint64_t u64_at(const void *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static inline uint32_t u32_at(const void *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

/*
 * The text of a str object as UTF-8, truncated between characters to `size`; `*ret_cut` (may be
 * NULL): whether truncated. NUL and lone surrogates become U+FFFD.
 */
int python_text(struct remote *r, uint64_t object, char *ret, size_t size, bool *ret_cut);

/* Whether the object is a str equal to `wanted`. */
bool python_text_is(struct remote *r, uint64_t object, const char *wanted);

/* A non-negative int object. */
int python_int(struct remote *r, uint64_t object, uint64_t *ret);

/* Reads a bytes object of at most `max` bytes. Returns the number or -errno. */
int python_bytes(struct remote *r, uint64_t object, void *ret, size_t max);

/* The type of an object. */
int python_type(struct remote *r, uint64_t object, uint64_t *ret);

/* A key to search (ASCII) and its result. */
struct python_key {
	const char *name;
	/*
	 * Address of the key's string object: if known, only addresses are compared, since names in
	 * code are interned. 0: texts are compared, and the address is stored here.
	 */
	uint64_t object;
	uint64_t value; /* borrowed reference; 0: absent */
	uint64_t slot;	/* address of the word that holds the value */
};

/* Looks up all `keys` in a dict, or in an instance's attributes. */
int python_dict_get(struct remote *r, uint64_t dict, struct python_key *keys, size_t n);
int python_attributes(struct remote *r, uint64_t object, struct python_key *keys, size_t n);

/* dict[number]. */
int python_dict_get_int(struct remote *r, uint64_t dict, uint64_t number, uint64_t *ret_value);

/* Number of items. */
int python_dict_size(struct remote *r, uint64_t dict, uint64_t *ret);

/* Calls `each` with every value of a dict until true; -ENOENT: never true. */
int python_dict_find(struct remote *r, uint64_t dict, bool (*each)(uint64_t value, void *context),
		     void *context);

#endif
