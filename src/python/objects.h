/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading Python objects of another process: strings, integers, dicts, attributes of instances,
 * of CPython 3.8 to 3.15. Everything is bounded; what does not look like the object it should be is
 * -EINVAL, what is not there -ENOENT.
 */
#ifndef UNDERSPAN_PYTHON_OBJECTS_H
#define UNDERSPAN_PYTHON_OBJECTS_H

#include <string.h>

#include "python/remote.h"

enum { OBJECT_TYPE = 8 }; /* where the header of every object has its type */

/* A number out of bytes that were read. */
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
 * The text of a str object as UTF-8, cut at a character where `size` is too small, which *ret_cut,
 * where it is not NULL, says. What C or UTF-8 cannot hold, NUL and lone surrogates, becomes U+FFFD.
 */
int python_text(struct remote *r, uint64_t object, char *ret, size_t size, bool *ret_cut);

/* True when the object is a str that says exactly this. */
bool python_text_is(struct remote *r, uint64_t object, const char *wanted);

/* A non-negative int object. */
int python_int(struct remote *r, uint64_t object, uint64_t *ret);

/* The `size` bytes of a bytes object, at most `max` of them. Returns their number or -errno. */
int python_bytes(struct remote *r, uint64_t object, void *ret, size_t max);

/* The type of an object. */
int python_type(struct remote *r, uint64_t object, uint64_t *ret);

/* A key that is looked for, ASCII, and what was found. */
struct python_key {
	const char *name;
	/*
	 * The string object that is the key: where it is known only it is compared, as an address,
	 * for names in code are interned. 0: texts are compared, and this is learned.
	 */
	uint64_t object;
	uint64_t value; /* borrowed reference; 0: the key is not there */
	uint64_t slot;	/* address of the word that held it */
};

/* Fills the values of all `keys` from a dict, or from an instance's attributes. */
int python_dict_get(struct remote *r, uint64_t dict, struct python_key *keys, size_t n);
int python_attributes(struct remote *r, uint64_t object, struct python_key *keys, size_t n);

/* dict[number]. */
int python_dict_get_int(struct remote *r, uint64_t dict, uint64_t number, uint64_t *ret_value);

/* Number of items. */
int python_dict_size(struct remote *r, uint64_t dict, uint64_t *ret);

/* Calls `each` with each value of a dict until it returns true; -ENOENT when it never does. */
int python_dict_find(struct remote *r, uint64_t dict, bool (*each)(uint64_t value, void *context),
		     void *context);

#endif
