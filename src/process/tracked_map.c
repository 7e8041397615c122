// SPDX-License-Identifier: Apache-2.0
/* The BPF map of tracked processes. See tracked_map.h. */
#include "process/tracked_map.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"

static int map_fd = -1;
static uint64_t *slots; /* shared with the kernel, which adds and subtracts, too */

static const size_t SLOTS_BYTES = PROCESS_SLOTS * sizeof(*slots);

int tracked_map_start(int processes_fd, int slots_fd, struct why *why)
{
	void *mapped = mmap(NULL, SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, slots_fd, 0);

	if (mapped == MAP_FAILED)
		return why_fail(why, errno, "cannot map the counts of tracked processes: %s",
				strerror(errno));
	map_fd = processes_fd;
	slots = mapped;
	return 0;
}

void tracked_map_stop(void)
{
	if (slots)
		munmap(slots, SLOTS_BYTES);
	slots = NULL;
	map_fd = -1;
}

static void slot_add(uint32_t host_pid, uint64_t n)
{
	__atomic_fetch_add(&slots[host_pid % PROCESS_SLOTS], n, __ATOMIC_RELAXED);
}

int tracked_map_add(uint32_t host_pid, const struct process_info *info)
{
	if (bpf_map_update_elem(map_fd, &host_pid, info, BPF_NOEXIST))
		return -errno;
	slot_add(host_pid, 1);
	return 0;
}

int tracked_map_change(uint32_t host_pid, const struct process_info *info)
{
	return bpf_map_update_elem(map_fd, &host_pid, info, BPF_EXIST) ? -errno : 0;
}

int tracked_map_put(uint32_t host_pid, const struct process_info *info)
{
	int err = tracked_map_add(host_pid, info);

	return err == -EEXIST ? tracked_map_change(host_pid, info) : err;
}

void tracked_map_delete(uint32_t host_pid)
{
	if (bpf_map_delete_elem(map_fd, &host_pid) == 0)
		slot_add(host_pid, (uint64_t)-1);
}

bool tracked_map_find(uint32_t host_pid, struct process_info *ret)
{
	return bpf_map_lookup_elem(map_fd, &host_pid, ret) == 0;
}
