// SPDX-License-Identifier: Apache-2.0
/* Reads memory of a running process. See remote.h. */
#include "cpython/remote.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/uio.h>

#include "host/proc.h"
#include "base/util.h"

/* Bits of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define PAGE_PRESENT (1ULL << 63)
#define PAGE_SWAPPED (1ULL << 62)

/*
 * Reading an absent page triggers a page fault: served by a file, a FUSE server, or the process
 * itself (userfaultfd), which may never answer; not even SIGKILL ends such a wait. Pages never
 * touched contain no Python data. 0, -EFAULT or, for pages of such files, -ENOTSUP.
 */
static int check_absent_page(uint32_t pid, uint64_t address)
{
	struct proc_mapping m;
	char path[4096];
	int fd = proc_find_mapping(pid, address, &m, path, sizeof(path));

	if (fd >= 0)
		fd = m.path ? proc_open_mapping(pid, m.low, m.high, m.path) : -EFAULT;
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int check_pages(uint32_t pid, uint64_t address, size_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), entries[64],
		 last = (address + size - 1) / page;
	AUTO_CLOSE int fd = -1;
	char name[64];
	int err = 0;

	snprintf(name, sizeof(name), "/proc/%u/pagemap", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT && kill((pid_t)pid, 0) == 0 ? 0 : -errno; /* not built in */
	for (uint64_t first = address / page; first <= last && !err; first += ARRAY_SIZE(entries)) {
		uint64_t n = last - first + 1;
		ssize_t got;

		if (n > ARRAY_SIZE(entries))
			n = ARRAY_SIZE(entries);
		got = pread(fd, entries, n * sizeof(*entries), (off_t)(first * sizeof(*entries)));
		if (got != (ssize_t)(n * sizeof(*entries)))
			return got < 0 ? -errno : -EFAULT;
		for (uint64_t i = 0; i < n && !err; i++) {
			if (!(entries[i] & (PAGE_PRESENT | PAGE_SWAPPED)))
				err = check_absent_page(pid, (first + i) * page);
		}
	}
	return err;
}

static int read_process(void *context, uint64_t address, void *buf, size_t size)
{
	struct iovec local = { buf, size }, there = { (void *)(uintptr_t)address, size };
	int err = check_pages((uint32_t)(uintptr_t)context, address, size);
	ssize_t n;

	if (err)
		return err;
	n = process_vm_readv((pid_t)(uintptr_t)context, &local, 1, &there, 1, 0);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EFAULT;
}

struct remote remote_of(uint32_t host_pid, const struct python_offsets *offsets, uint32_t reads)
{
	return (struct remote){ .read = read_process,
				.context = (void *)(uintptr_t)host_pid,
				.offsets = offsets,
				.reads_left = reads };
}

int remote_read(struct remote *r, uint64_t address, void *buf, size_t size)
{
	if (!r->reads_left)
		return -EDQUOT;
	r->reads_left--;
	/* no object is in the first page; the address must not overflow */
	if (address < 4096 || address + size < address)
		return -EFAULT;
	r->bytes_read += size;
	return r->read(r->context, address, buf, size);
}

int remote_u64(struct remote *r, uint64_t address, uint64_t *ret)
{
	return remote_read(r, address, ret, sizeof(*ret));
}

bool token_bucket_take(struct token_bucket *b, uint64_t n, bool keep_half, uint64_t now_ns)
{
	uint64_t burst_ns = b->burst_ms * NSEC_PER_MSEC, cost_ns = n * NSEC_PER_SEC / b->per_second;
	uint64_t kept_ns = keep_half ? burst_ns / 2 : 0;

	if (now_ns > b->at_ns) {
		uint64_t passed_ns = now_ns - b->at_ns;

		b->saved_ns += passed_ns < burst_ns ? passed_ns : burst_ns;
		if (b->saved_ns > burst_ns)
			b->saved_ns = burst_ns;
		b->at_ns = now_ns;
	}
	if (b->saved_ns < cost_ns + kept_ns)
		return false;
	b->saved_ns -= cost_ns;
	return true;
}

bool token_bucket_take_share(struct token_bucket *all, struct token_bucket *own, uint64_t now_ns)
{
	bool beyond = !token_bucket_take(own, 1, false, now_ns);

	return token_bucket_take(all, 1, beyond, now_ns);
}

void token_bucket_charge(struct token_bucket *b, size_t bytes)
{
	enum { INCLUDED = 65536 }; /* about 10 us */
	uint64_t cost_ns = bytes / INCLUDED * NSEC_PER_SEC / b->per_second;

	b->saved_ns -= cost_ns < b->saved_ns ? cost_ns : b->saved_ns;
}
