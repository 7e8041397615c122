/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the memory of another process while it runs, without stopping it. What is read is
 * untrusted, may change between two reads and may lead in circles: every read takes one of a
 * number that was granted beforehand, so that no structure, however broken, costs more than that.
 */
#ifndef UNDERSPAN_PYTHON_REMOTE_H
#define UNDERSPAN_PYTHON_REMOTE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "python_offsets.h"

struct remote {
	/* Reads exactly `size` bytes: 0 or -errno. */
	int (*read)(void *context, uint64_t address, void *buf, size_t size);
	void *context;
	const struct python_offsets *offsets;
	uint64_t str_type;   /* the type of exact str objects; 0: not known yet */
	uint32_t reads_left; /* after these, -EDQUOT */
	size_t bytes_read;
};

/* A reader of a live process of this host. `offsets` is borrowed. */
struct remote remote_of(uint32_t host_pid, const struct python_offsets *offsets, uint32_t reads);

int remote_read(struct remote *r, uint64_t address, void *buf, size_t size);
int remote_u64(struct remote *r, uint64_t address, uint64_t *ret);

/*
 * At most `per_second` of something, and at most as many at once as a `burst_ms` brings: what
 * strangers may make the agent do must not become all that it does.
 */
struct allowance {
	uint64_t per_second, burst_ms;
	uint64_t saved_ns; /* time that was not used yet; zero-initialised: nothing saved */
	uint64_t at_ns;
};

/* False when there are not `n` left. With `keep_half`, half of the burst is left for others. */
bool allowance_take(struct allowance *a, uint64_t n, bool keep_half, uint64_t now_ns);

/* The same of one of many who share `all`: what is beyond its own share leaves half to others. */
bool allowance_take_share(struct allowance *all, struct allowance *own, uint64_t now_ns);

/* Takes what so many bytes cost more than the one that was taken, or all that is left. */
void allowance_charge(struct allowance *a, size_t bytes);

#endif
