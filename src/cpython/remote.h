/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads memory of a running process without stopping it. The data are untrusted, may change between
 * reads, and may form cycles: the number of reads is limited beforehand, which bounds the cost of
 * any structure.
 */
#ifndef UNDERSPAN_CPYTHON_REMOTE_H
#define UNDERSPAN_CPYTHON_REMOTE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "python_offsets.h"

struct remote {
	/* Reads exactly `size` bytes: 0 or -errno. */
	int (*read)(void *context, uint64_t address, void *buf, size_t size);
	void *context;
	const struct python_offsets *offsets;
	uint64_t str_type;   /* type of exact str objects; 0: unknown */
	uint32_t reads_left; /* -EDQUOT when used up */
	size_t bytes_read;
};

/* A reader for a live process. `offsets` is borrowed. */
struct remote remote_of(uint32_t host_pid, const struct python_offsets *offsets, uint32_t reads);

int remote_read(struct remote *r, uint64_t address, void *buf, size_t size);
int remote_u64(struct remote *r, uint64_t address, uint64_t *ret);

/*
 * Token bucket: `per_second` tokens, burst of `burst_ms`. Limits the work that untrusted processes
 * can cause.
 */
struct token_bucket {
	uint64_t per_second, burst_ms;
	uint64_t saved_ns; /* saved tokens as time; zero-initialized: empty */
	uint64_t at_ns;
};

/* False: fewer than `n` tokens. `keep_half`: leaves half of the burst for other users. */
bool token_bucket_take(struct token_bucket *b, uint64_t n, bool keep_half, uint64_t now_ns);

/* Takes from the shared bucket `all`; beyond the own share `own`, half of `all` is left for other
 * users. */
bool token_bucket_take_share(struct token_bucket *all, struct token_bucket *own, uint64_t now_ns);

/* Charges the additional cost of `bytes`, down to an empty bucket. */
void token_bucket_charge(struct token_bucket *b, size_t bytes);

#endif
