// SPDX-License-Identifier: Apache-2.0
/* Reading a running process from outside. See memory.h. */
#include "probe/memory.h"

#include <string.h>
#include <sys/uio.h>

/* A hostile process can map a file 65,530 times; a Python has a few hundred lines. */
enum { MAX_LINES = 20000, LINE_MAX_BYTES = 4096 + 128 };

/* The line's own inode number may be that of an upper file system: the file itself is asked. */
static bool is_file(uint32_t host_pid, unsigned long long low, unsigned long long high,
		    unsigned long long line_ino, const struct file_identity *wanted)
{
	struct file_identity identity;
	struct stat st;
	char link[96];

	snprintf(link, sizeof(link), "/proc/%u/map_files/%llx-%llx", host_pid, low, high);
	if (stat(link, &st))
		return line_ino == wanted->ino;
	file_identity_of(&st, &identity);
	return !memcmp(&identity, wanted, sizeof(identity));
}

int memory_file_base(uint32_t host_pid, const struct file_identity *identity, uint64_t *ret_address)
{
	AUTO_FCLOSE FILE *maps = NULL;
	char line[LINE_MAX_BYTES], name[64];

	snprintf(name, sizeof(name), "/proc/%u/maps", host_pid);
	maps = fopen(name, "re");
	if (!maps)
		return -errno;
	for (int i = 0; i < MAX_LINES && fgets(line, sizeof(line), maps); i++) {
		unsigned long long low, high, offset, ino;

		if (sscanf(line, "%llx-%llx %*s %llx %*s %llu", &low, &high, &offset, &ino) != 4 ||
		    offset || !ino || !is_file(host_pid, low, high, ino, identity))
			continue;
		*ret_address = low;
		return 0;
	}
	return -ENOENT;
}

bool memory_read(uint32_t host_pid, uint64_t address, void *buf, size_t size)
{
	struct iovec local = { buf, size };
	/* an address, not a pointer of ours */
	struct iovec remote = { (void *)(uintptr_t)address, size };

	return process_vm_readv((pid_t)host_pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}
