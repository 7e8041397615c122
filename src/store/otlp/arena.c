// SPDX-License-Identifier: Apache-2.0
/* Memory of one decoded request. See arena.h. */
#include "store/otlp/arena.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 256 << 10, ALIGNMENT = 16 };

struct arena_block {
	struct arena_block *next;
	_Alignas(ALIGNMENT) char bytes[];
};

static _Thread_local struct arena *json_arena;

/* False: over the limit. */
static bool spend(struct arena *a, size_t size)
{
	if (size > a->left) {
		a->over = true;
		return false;
	}
	a->left -= size;
	return true;
}

static bool add_block(struct arena *a, size_t size)
{
	struct arena_block *block;

	if (size < BLOCK_BYTES)
		size = BLOCK_BYTES;
	if (size > a->left && a->left >= ALIGNMENT)
		size = a->left;
	if (!spend(a, size))
		return false;
	block = calloc(1, sizeof(*block) + size);
	if (!block) {
		a->over = true;
		return false;
	}
	block->next = a->blocks;
	a->blocks = block;
	a->used = 0;
	a->size = size;
	return true;
}

void *arena_alloc(struct arena *a, size_t size)
{
	void *p;

	if (size > SIZE_MAX - ALIGNMENT) {
		a->over = true;
		return NULL;
	}
	size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	if (size > a->size - a->used && !add_block(a, size))
		return NULL;
	if (size > a->size - a->used) { /* the last block is smaller than asked */
		a->over = true;
		return NULL;
	}
	p = a->blocks ? a->blocks->bytes + a->used : NULL;
	a->used += size;
	return p;
}

static void *alloc_for_protobuf(void *arena, size_t size)
{
	/* a size of 0 is not a failure */
	return arena_alloc(arena, size ?: 1);
}

static void free_for_protobuf(void *arena, void *p)
{
	(void)arena;
	(void)p;
}

void arena_init(struct arena *a, size_t max_bytes)
{
	*a = (struct arena){ .left = max_bytes };
	a->allocator = (ProtobufCAllocator){ .alloc = alloc_for_protobuf,
					     .free = free_for_protobuf,
					     .allocator_data = a };
}

void arena_free(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *block = a->blocks;

		a->blocks = block->next;
		free(block);
	}
	a->used = a->size = 0;
}

/* ---- jansson ---- */

static void *json_malloc(size_t size)
{
	/* memory freed by jansson during the parse is not subtracted: an upper bound */
	return !json_arena || spend(json_arena, size) ? malloc(size) : NULL;
}

void arena_limits_json(struct arena *a)
{
	json_arena = a;
}

void arena_init_json(void)
{
	json_set_alloc_funcs(json_malloc, free);
}
