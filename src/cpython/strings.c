// SPDX-License-Identifier: Apache-2.0
/* Strings of another process. See objects.h. */
#include "cpython/objects.h"

#include <string.h>

#include "base/util.h"

enum { CHUNK = 1024, STR_HEAD_MAX = 64 };

struct str_head {
	uint64_t length; /* characters */
	uint64_t data;	 /* address of the first */
	uint8_t kind;	 /* bytes per character: 1, 2, 4 */
	bool ascii;
};

static int read_str_head(struct remote *r, uint64_t object, struct str_head *ret)
{
	const struct python_offsets *o = r->offsets;
	uint8_t head[STR_HEAD_MAX];
	uint32_t state;
	int err;

	if (o->unicode_ascii_data > sizeof(head) || o->unicode_state + 4 > sizeof(head) ||
	    o->unicode_length + 8 > sizeof(head) || o->unicode_ascii_data < 24)
		return -EINVAL;
	err = remote_read(r, object, head, o->unicode_ascii_data);
	if (err)
		return err;
	if (r->str_type && u64_at(head + OBJECT_TYPE) != r->str_type)
		return -EINVAL;
	/* interned:2, kind:3, compact:1, ascii:1; legacy strings are not compact */
	state = u32_at(head + o->unicode_state);
	ret->kind = state >> 2 & 7;
	ret->ascii = state >> 6 & 1;
	ret->length = u64_at(head + o->unicode_length);
	ret->data = object + (ret->ascii ? o->unicode_ascii_data : o->unicode_compact_data);
	if (!(state >> 5 & 1) || ret->length >> 40 || (ret->ascii && ret->kind != 1) ||
	    (ret->kind != 1 && ret->kind != 2 && ret->kind != 4))
		return -EINVAL;
	return 0;
}

/* Appends a character; returns its bytes, 0: no room. */
static size_t put_utf8(uint32_t c, char *to, size_t room)
{
	if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80 && room >= 1) {
		to[0] = (char)c;
		return 1;
	}
	if (c >= 0x80 && c < 0x800 && room >= 2) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c >= 0x800 && c < 0x10000 && room >= 3) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	if (c >= 0x10000 && room >= 4) {
		to[0] = (char)(0xf0 | c >> 18);
		to[1] = (char)(0x80 | (c >> 12 & 0x3f));
		to[2] = (char)(0x80 | (c >> 6 & 0x3f));
		to[3] = (char)(0x80 | (c & 0x3f));
		return 4;
	}
	return 0;
}

static uint32_t character(const uint8_t *text, uint8_t kind, size_t i)
{
	if (kind == 1)
		return text[i];
	if (kind == 4)
		return u32_at(text + i * 4);
	return (uint32_t)(text[i * 2] | text[i * 2 + 1] << 8);
}

int python_text(struct remote *r, uint64_t object, char *ret, size_t size, bool *ret_cut)
{
	uint8_t text[CHUNK * 4];
	struct str_head head;
	size_t used = 0, n = 1;
	int err = read_str_head(r, object, &head);

	if (err)
		return err;
	/* each character needs at least a byte: bounds the characters to read */
	for (uint64_t done = 0; done < head.length && n; done += CHUNK) {
		size_t length = head.length - done < CHUNK ? head.length - done : CHUNK;

		length = length < size - used ? length : size - used;
		err = remote_read(r, head.data + done * head.kind, text, length * head.kind);
		if (err)
			return err;
		for (size_t i = 0; i < length && n; i++) {
			n = put_utf8(character(text, head.kind, i), ret + used, size - 1 - used);
			used += n;
		}
	}
	ret[used] = 0;
	if (ret_cut)
		*ret_cut = !n;
	return 0;
}

bool python_text_is(struct remote *r, uint64_t object, const char *wanted)
{
	uint8_t text[STR_HEAD_MAX + 64];
	const struct python_offsets *o = r->offsets;
	size_t length = strlen(wanted);

	if (o->unicode_ascii_data > STR_HEAD_MAX || length > 64 ||
	    o->unicode_length + 8 > o->unicode_ascii_data ||
	    o->unicode_state + 4 > o->unicode_ascii_data)
		return false;
	/* reads exactly the length of an equal string: the memory may end there */
	if (remote_read(r, object, text, o->unicode_ascii_data + length))
		return false;
	return u64_at(text + o->unicode_length) == length &&
	       (u32_at(text + o->unicode_state) >> 5 & 3) == 3 &&
	       !memcmp(text + o->unicode_ascii_data, wanted, length);
}
