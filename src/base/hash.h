/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash tables: uthash with a hash of whole words. Keys are ids and addresses of a few words, looked
 * up several times a row; uthash's own hash takes them byte by byte. Neither resists keys that were
 * chosen to collide: a service can slow down only the look-ups of its own frames.
 */
#ifndef UNDERSPAN_BASE_HASH_H
#define UNDERSPAN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef UTHASH_H
#error "include base/hash.h instead of uthash.h"
#endif

static inline uint64_t key_hash_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
	return hash ^ hash >> 32;
}

static inline uint32_t key_hash(const void *key, size_t len)
{
	const char *at = key;
	uint64_t hash = len, word;

	for (; len >= sizeof(word); at += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = key_hash_mix(hash, word);
	}
	word = 0;
	memcpy(&word, at, len);
	return (uint32_t)key_hash_mix(hash, word);
}

#define HASH_FUNCTION(key, len, hash) ((hash) = key_hash((key), (len)))
#include <uthash.h>

#endif
