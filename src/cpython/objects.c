// SPDX-License-Identifier: Apache-2.0
/* Numbers, dicts and attributes of another process. See objects.h; strings are strings.c's. */
#include "cpython/objects.h"

#include <string.h>

#include "base/util.h"

/* Offsets equal in all versions: PyObject, PyVarObject, int, dict, type. */
enum {
	VAR_SIZE = 16, /* int up to 3.11: digits; since 3.12: digits << 3 | flags; digits follow */
	DICT_USED = 16,
	DICT_KEYS = 32,
	DICT_VALUES = 40, /* 0: combined table, values beside the keys */
	TYPE_BASICSIZE = 32,
	TYPE_FLAGS = 168,
	TYPE_DICTOFFSET = 288,
};

/* Type flags */
enum { HAS_INLINE_VALUES = 1 << 2, HAS_MANAGED_DICT = 1 << 4 };

/* Location of an instance's attributes. */
enum attributes_kind {
	AT_DICTOFFSET,	/* up to 3.10: a dict at the type's tp_dictoffset */
	VALUES_OR_DICT, /* 3.11: values 4 words or a dict 3 words before the object */
	TAGGED_VALUES,	/* 3.12: a dict 3 words before the object or, with bit 0 set, values */
	INLINE_VALUES,	/* 3.13: dict 3 words before the object; 0: values after it */
};

/* Layout per version, used only here. */
struct object_layout {
	uint8_t attributes;	   /* enum attributes_kind */
	uint8_t values_begin;	   /* offset of the first of split values */
	uint8_t keys_have_kind;	   /* 3.11+ */
	uint16_t type_cached_keys; /* ht_cached_keys: keys shared by instances */
};

static struct object_layout layout_of(const struct python_offsets *o)
{
	struct object_layout l = { .attributes = AT_DICTOFFSET };

	if (o->minor >= 11) {
		l.attributes = VALUES_OR_DICT;
		l.keys_have_kind = true;
		l.type_cached_keys = 872;
	}
	if (o->minor >= 12) {
		l.attributes = TAGGED_VALUES;
		l.type_cached_keys = 880;
	}
	if (o->minor >= 13) {
		l.attributes = INLINE_VALUES;
		l.values_begin = 8;
	}
	if (o->minor >= 15)
		l.type_cached_keys = 888;
	return l;
}

int python_type(struct remote *r, uint64_t object, uint64_t *ret)
{
	return remote_u64(r, object + OBJECT_TYPE, ret);
}

/* ---- numbers and bytes ---- */

int python_int(struct remote *r, uint64_t object, uint64_t *ret)
{
	struct {
		uint64_t size;
		uint32_t digits[2]; /* objects are multiples of 16 bytes: two digits are always
				       readable */
	} number;
	int err = remote_read(r, object + VAR_SIZE, &number, sizeof(number));
	uint64_t size = number.size;

	if (err)
		return err;
	if (r->offsets->minor >= 12) {
		if ((size & 3) == 2) /* negative */
			return -EINVAL;
		size >>= 3;
	}
	if (size > 2)
		return -EINVAL;
	*ret = (size > 0 ? number.digits[0] : 0) | (uint64_t)(size > 1 ? number.digits[1] : 0)
							   << 30;
	return 0;
}

int python_bytes(struct remote *r, uint64_t object, void *ret, size_t max)
{
	uint64_t size;
	int err = remote_u64(r, object + r->offsets->bytes_size, &size);

	if (err)
		return err;
	if (size > INT32_MAX)
		return -EINVAL;
	if (size > max)
		size = max;
	if (size)
		err = remote_read(r, object + r->offsets->bytes_data, ret, size);
	return err ? err : (int)size;
}

/* ---- dicts ---- */

enum { DICT_MAX_ENTRIES = 1 << 18, ENTRY_MAX = 24, CHUNK_ENTRIES = 2048 };

/* Entries of a dict in insertion order; values combined or split. */
struct dict_keys {
	uint64_t entries; /* address of the first entry */
	uint64_t n;
	uint64_t values; /* address of split values, otherwise 0 */
	uint8_t entry_size;
	bool has_hash; /* entries: hash, key, value; otherwise key, value */
};

static int read_dict_keys(struct remote *r, uint64_t address, uint64_t values,
			  struct dict_keys *ret)
{
	struct object_layout l = layout_of(r->offsets);
	uint8_t head[40];
	uint64_t size;
	int err = address % 8 ? -EINVAL : remote_read(r, address, head, sizeof(head));

	if (err)
		return err;
	if (l.keys_have_kind) {
		enum { GENERAL = 0, UNICODE = 1, SPLIT = 2 };

		if (head[9] > 40 || head[10] > SPLIT)
			return -EINVAL;
		ret->has_hash = head[10] == GENERAL;
		ret->entries = address + 32 + (1ULL << head[9]);
		ret->n = u64_at(head + 24);
	} else {
		size = u64_at(head + 8);
		if (!size || size & (size - 1) || size > 4 * DICT_MAX_ENTRIES)
			return -EINVAL;
		ret->has_hash = true;
		/* width of the indices for this size */
		ret->entries = address + 40 + size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : 4);
		ret->n = u64_at(head + 32);
	}
	ret->entry_size = ret->has_hash ? 24 : 16;
	ret->values = values ? values + l.values_begin : 0;
	return ret->n > DICT_MAX_ENTRIES ? -EINVAL : 0;
}

static int open_dict(struct remote *r, uint64_t dict, struct dict_keys *ret)
{
	uint64_t at[2];
	int err = dict % 8 ? -EINVAL : remote_read(r, dict + DICT_KEYS, at, sizeof(at));

	return err ? err : read_dict_keys(r, at[0], at[1], ret);
}

struct dict_entry {
	uint64_t hash, key, value;
};

/* Called for each entry with its index; true ends the iteration. */
typedef bool (*entry_visitor)(struct remote *r, const struct dict_keys *keys, uint64_t index,
			      const struct dict_entry *entry, void *context);

static int walk(struct remote *r, const struct dict_keys *keys, entry_visitor visit, void *context)
{
	uint8_t chunk[CHUNK_ENTRIES * ENTRY_MAX];

	for (uint64_t begin = 0; begin < keys->n; begin += CHUNK_ENTRIES) {
		uint64_t n = keys->n - begin < CHUNK_ENTRIES ? keys->n - begin : CHUNK_ENTRIES;
		int err = remote_read(r, keys->entries + begin * keys->entry_size, chunk,
				      n * keys->entry_size);

		if (err)
			return err;
		for (uint64_t i = 0; i < n; i++) {
			const uint8_t *at = chunk + i * keys->entry_size;
			struct dict_entry entry = { .hash = keys->has_hash ? u64_at(at) : 0 };

			at += keys->has_hash ? 8 : 0;
			entry.key = u64_at(at);
			entry.value = u64_at(at + 8);
			if (entry.key && visit(r, keys, begin + i, &entry, context))
				return 0;
		}
	}
	return -ENOENT;
}

struct search {
	struct python_key *keys;
	size_t n, found;
};

static struct python_key *match(struct remote *r, const struct search *s, uint64_t object)
{
	for (size_t i = 0; i < s->n; i++) {
		struct python_key *key = &s->keys[i];

		if (key->value)
			continue;
		if (key->object ? key->object == object : python_text_is(r, object, key->name))
			return key;
	}
	return NULL;
}

static bool search_entry(struct remote *r, const struct dict_keys *keys, uint64_t index,
			 const struct dict_entry *entry, void *context)
{
	struct search *s = context;
	struct python_key *key = match(r, s, entry->key);
	uint64_t value = entry->value, slot;

	if (!key)
		return !r->reads_left;
	slot = keys->entries + index * keys->entry_size + (keys->has_hash ? 16 : 8);
	if (keys->values) {
		slot = keys->values + index * 8;
		if (remote_u64(r, slot, &value))
			value = 0;
	}
	key->object = entry->key;
	key->slot = slot;
	key->value = value;
	return value && ++s->found == s->n;
}

static int search(struct remote *r, const struct dict_keys *dict, struct python_key *keys, size_t n)
{
	struct search s = { keys, n, 0 };
	int err;

	for (size_t i = 0; i < n; i++)
		keys[i].value = 0;
	err = walk(r, dict, search_entry, &s);
	if (err == -ENOENT)
		err = 0;
	return !err && !r->reads_left && s.found < n ? -EDQUOT : err;
}

int python_dict_get(struct remote *r, uint64_t dict, struct python_key *keys, size_t n)
{
	struct dict_keys opened;
	int err = open_dict(r, dict, &opened);

	return err ? err : search(r, &opened, keys, n);
}

int python_dict_size(struct remote *r, uint64_t dict, uint64_t *ret)
{
	return remote_u64(r, dict + DICT_USED, ret);
}

struct number_search {
	uint64_t number, value;
};

static bool has_number(struct remote *r, const struct dict_keys *keys, uint64_t index,
		       const struct dict_entry *entry, void *context)
{
	struct number_search *s = context;

	(void)r;
	(void)index;
	if (entry->hash != s->number || !entry->value || keys->values)
		return false;
	s->value = entry->value;
	return true;
}

/* The hash of an int up to 2 ** 61 - 2 is the int: only the entries have to be read. */
int python_dict_get_int(struct remote *r, uint64_t dict, uint64_t number, uint64_t *ret_value)
{
	struct number_search s = { .number = number };
	struct dict_keys keys;
	int err = open_dict(r, dict, &keys);

	if (!err && !keys.has_hash)
		return -ENOENT; /* all keys are strings */
	if (!err)
		err = walk(r, &keys, has_number, &s);
	if (!err)
		*ret_value = s.value;
	return err;
}

struct value_visitor {
	bool (*each)(uint64_t value, void *context);
	void *context;
};

static bool visit_value(struct remote *r, const struct dict_keys *keys, uint64_t index,
			const struct dict_entry *entry, void *context)
{
	struct value_visitor *v = context;

	(void)keys;
	(void)index;
	return !r->reads_left || (entry->value && v->each(entry->value, v->context));
}

int python_dict_find(struct remote *r, uint64_t dict, bool (*each)(uint64_t value, void *context),
		     void *context)
{
	struct value_visitor v = { each, context };
	struct dict_keys keys;
	int err = open_dict(r, dict, &keys);

	if (!err)
		err = walk(r, &keys, visit_value, &v);
	return !err && !r->reads_left ? -EDQUOT : err;
}

/* ---- attributes ---- */

/* Searches split values at `values`; the names are in the shared keys of the class. */
static int search_values(struct remote *r, uint64_t type, uint64_t values, struct python_key *keys,
			 size_t n)
{
	struct object_layout l = layout_of(r->offsets);
	struct dict_keys shared;
	uint64_t address;
	int err = remote_u64(r, type + l.type_cached_keys, &address);

	if (!err)
		err = read_dict_keys(r, address, values, &shared);
	return err ? err : search(r, &shared, keys, n);
}

static int search_inline(struct remote *r, uint64_t object, uint64_t type, uint64_t flags,
			 struct python_key *keys, size_t n)
{
	uint64_t size, head;
	int err;

	if (!(flags & HAS_INLINE_VALUES))
		return -ENOENT;
	err = remote_u64(r, type + TYPE_BASICSIZE, &size);
	if (!err && size > 4096)
		err = -EINVAL;
	if (!err)
		err = remote_u64(r, object + size, &head);
	/* bytes capacity, size, embedded, valid; then the values */
	if (!err && !(head >> 24 & 0xff))
		err = -ENOENT;
	return err ? err : search_values(r, type, object + size, keys, n);
}

int python_attributes(struct remote *r, uint64_t object, struct python_key *keys, size_t n)
{
	struct object_layout l = layout_of(r->offsets);
	uint64_t type, flags, offset, before[2];
	int err = object % 8 ? -EINVAL : python_type(r, object, &type);

	if (!err && l.attributes == AT_DICTOFFSET) {
		err = remote_u64(r, type + TYPE_DICTOFFSET, &offset);
		if (!err && (!offset || offset > 4096))
			err = -EINVAL; /* a variable-size object, e.g. a subclass of tuple */
		if (!err)
			err = remote_u64(r, object + offset, &before[1]);
		return err ? err : python_dict_get(r, before[1], keys, n);
	}
	if (!err)
		err = remote_u64(r, type + TYPE_FLAGS, &flags);
	if (!err && !(flags & HAS_MANAGED_DICT))
		err = -EINVAL;
	if (!err)
		err = remote_read(r, object - 32, before, sizeof(before));
	if (err)
		return err;
	if (l.attributes == VALUES_OR_DICT && before[0])
		return search_values(r, type, before[0], keys, n);
	if (l.attributes == TAGGED_VALUES && before[1] & 1)
		return search_values(r, type, before[1] + 1, keys, n);
	if (l.attributes == INLINE_VALUES && !before[1])
		return search_inline(r, object, type, flags, keys, n);
	return python_dict_get(r, before[1], keys, n);
}
