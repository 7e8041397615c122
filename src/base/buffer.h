/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer. An append is complete or fails with -ENOMEM. */
#ifndef UNDERSPAN_BASE_BUFFER_H
#define UNDERSPAN_BASE_BUFFER_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
	char *data;
	size_t len, capacity;
};

static inline int buffer_reserve(struct buffer *b, size_t more)
{
	size_t capacity = b->capacity ? b->capacity : 4096;
	char *grown;

	if (b->capacity - b->len >= more)
		return 0;
	while (capacity - b->len < more)
		capacity *= 2;
	grown = realloc(b->data, capacity);
	if (!grown)
		return -ENOMEM;
	b->data = grown;
	b->capacity = capacity;
	return 0;
}

static inline int buffer_append(struct buffer *b, const void *data, size_t len)
{
	int err = buffer_reserve(b, len);

	if (err || !len)
		return err;
	memcpy(b->data + b->len, data, len);
	b->len += len;
	return 0;
}

/* Releases unused capacity. */
static inline void buffer_shrink(struct buffer *b)
{
	char *smaller = b->len ? realloc(b->data, b->len) : NULL;

	if (smaller) {
		b->data = smaller;
		b->capacity = b->len;
	}
}

static inline void buffer_free(struct buffer *b)
{
	free(b->data);
	*b = (struct buffer){ 0 };
}

#endif
