// SPDX-License-Identifier: Apache-2.0
/* Reads a BPF ring buffer. See ring.h; the layout is the kernel's, kernel/bpf/ringbuf.c. */
#include "trackers/ring.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"

/* Before a record: its length with two marks, and four bytes for the kernel. */
enum { HEADER = BPF_RINGBUF_HDR_SZ };

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

int ring_open(struct ring *ret, int fd)
{
	struct bpf_map_info info = { 0 };
	uint32_t len = sizeof(info);
	size_t page = page_size();
	void *consumer, *producer;

	if (bpf_obj_get_info_by_fd(fd, &info, &len))
		return -errno;
	if (info.type != BPF_MAP_TYPE_RINGBUF)
		return -EINVAL;
	consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (consumer == MAP_FAILED)
		return -errno;
	producer = mmap(NULL, page + info.max_entries, PROT_READ, MAP_SHARED, fd, (off_t)page);
	if (producer == MAP_FAILED) {
		int err = -errno;

		munmap(consumer, page);
		return err;
	}
	*ret = (struct ring){
		.fd = fd, .consumed = consumer, .pages = producer, .size = info.max_entries
	};
	return 0;
}

void ring_close(struct ring *ring)
{
	munmap(ring->consumed, page_size());
	munmap((void *)ring->pages, page_size() + ring->size);
	*ring = (struct ring){ .fd = -1 };
}

/* False: the record ends behind the end, and there is no memory to put it together now. */
static bool pass_on(const struct ring *ring, size_t at, size_t len, ring_on_record on_record,
		    void *context)
{
	const char *records = (const char *)ring->pages + page_size();
	size_t first = ring->size - at;
	char *whole;

	if (len <= first) {
		on_record(context, records + at, len);
		return true;
	}
	whole = malloc(len);
	if (!whole)
		return false;
	memcpy(whole, records + at, first);
	memcpy(whole + first, records, len - first);
	on_record(context, whole, len);
	free(whole);
	return true;
}

size_t ring_read(struct ring *ring, size_t max, ring_on_record on_record, void *context)
{
	const char *records = (const char *)ring->pages + page_size();
	unsigned long at = *ring->consumed;
	size_t n = 0;

	while (n < max &&
	       at < __atomic_load_n((const unsigned long *)ring->pages, __ATOMIC_ACQUIRE)) {
		size_t offset = at & (ring->size - 1);
		uint32_t header = __atomic_load_n((const uint32_t *)(records + offset),
						  __ATOMIC_ACQUIRE);
		uint32_t len = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (header & BPF_RINGBUF_BUSY_BIT) /* being written */
			break;
		/* a header is never in two pieces */
		if (!(header & BPF_RINGBUF_DISCARD_BIT) &&
		    !pass_on(ring, (offset + HEADER) & (ring->size - 1), len, on_record, context))
			break;
		n++;
		at += (HEADER + (unsigned long)len + 7) & ~7UL;
		__atomic_store_n(ring->consumed, at, __ATOMIC_RELEASE);
	}
	return n;
}
