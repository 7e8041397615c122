/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one decoded request: limited, freed at once. Two bytes of protobuf can become a struct
 * of 200 bytes, therefore a limit for the body is not enough. Not thread-safe.
 */
#ifndef UNDERSPAN_STORE_OTLP_ARENA_H
#define UNDERSPAN_STORE_OTLP_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
	size_t left; /* bytes that may still be allocated */
	bool over;   /* an allocation was refused */
	ProtobufCAllocator allocator;
	struct arena_block *blocks; /* private from here on */
	size_t used, size;	    /* of the first block */
};

/* The arena must not move: the allocator refers to it. */
void arena_init(struct arena *arena, size_t max_bytes);
void arena_free(struct arena *arena);

/* Zeroed; NULL: over the limit, or out of memory (`over` in both cases). */
void *arena_alloc(struct arena *arena, size_t size);

/* While `arena` is set, the calling thread's jansson values count against the limit of `arena`;
 * json_decref() frees as always. */
void arena_limits_json(struct arena *arena);

/* jansson allocates by this file from now on. Before further threads use jansson. */
void arena_init_json(void);

#endif
