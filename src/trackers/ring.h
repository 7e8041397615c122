/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a BPF ring buffer (BPF_MAP_TYPE_RINGBUF). libbpf's reader maps the records twice in a row,
 * so that none is in two pieces: each ring would count twice in the agent's resident memory. Here
 * the rare record across the end is copied.
 */
#ifndef UNDERSPAN_TRACKERS_RING_H
#define UNDERSPAN_TRACKERS_RING_H

#include <stddef.h>
#include <stdint.h>

struct ring {
	int fd;			 /* the map, owned by the BPF object; ready to read: has records */
	unsigned long *consumed; /* shared with the kernel, in a page of its own */
	const void *pages;	 /* a page with the producer's position, then the records */
	size_t size;		 /* bytes of records: a power of two */
};

/* `record` is valid during the call. */
typedef void (*ring_on_record)(void *context, const void *record, size_t size);

/* `fd`: of a ring buffer. 0, or -errno. */
int ring_open(struct ring *ret, int fd);
void ring_close(struct ring *ring);

/* Passes on up to `max` complete records, in order. Returns their number, discarded ones included.
 */
size_t ring_read(struct ring *ring, size_t max, ring_on_record on_record, void *context);

#endif
