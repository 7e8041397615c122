// SPDX-License-Identifier: Apache-2.0
/* Reading the memory of another process while it runs. See remote.h. */
#include "python/remote.h"

#include <sys/uio.h>

#include "util.h"

static int read_process(void *context, uint64_t address, void *buf, size_t size)
{
	struct iovec local = { buf, size }, there = { (void *)(uintptr_t)address, size };
	ssize_t n = process_vm_readv((pid_t)(uintptr_t)context, &local, 1, &there, 1, 0);

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
	/* no object lies in the first page, and an address beyond the sum's end is none */
	if (address < 4096 || address + size < address)
		return -EFAULT;
	r->bytes_read += size;
	return r->read(r->context, address, buf, size);
}

int remote_u64(struct remote *r, uint64_t address, uint64_t *ret)
{
	return remote_read(r, address, ret, sizeof(*ret));
}

bool allowance_take(struct allowance *a, uint64_t n, bool keep_half, uint64_t now_ns)
{
	uint64_t burst_ns = a->burst_ms * NSEC_PER_MSEC, cost_ns = n * NSEC_PER_SEC / a->per_second;
	uint64_t kept_ns = keep_half ? burst_ns / 2 : 0;

	if (now_ns > a->at_ns) {
		uint64_t passed_ns = now_ns - a->at_ns;

		a->saved_ns += passed_ns < burst_ns ? passed_ns : burst_ns;
		if (a->saved_ns > burst_ns)
			a->saved_ns = burst_ns;
		a->at_ns = now_ns;
	}
	if (a->saved_ns < cost_ns + kept_ns)
		return false;
	a->saved_ns -= cost_ns;
	return true;
}

bool allowance_take_share(struct allowance *all, struct allowance *own, uint64_t now_ns)
{
	bool beyond = !allowance_take(own, 1, false, now_ns);

	return allowance_take(all, 1, beyond, now_ns);
}

void allowance_charge(struct allowance *a, size_t bytes)
{
	enum { INCLUDED = 65536 }; /* some 10 us */
	uint64_t cost_ns = bytes / INCLUDED * NSEC_PER_SEC / a->per_second;

	a->saved_ns -= cost_ns < a->saved_ns ? cost_ns : a->saved_ns;
}
