/* SPDX-License-Identifier: Apache-2.0 */
/* Executable mappings of a process, in order of /proc/PID/maps. */
#ifndef UNDERSPAN_HOST_CODE_MAP_H
#define UNDERSPAN_HOST_CODE_MAP_H

#include "host/file_identity.h"
#include "base/util.h"

/* Device and inode as in /proc/PID/maps; on some file systems different from stat(). */
struct file_id {
	uint32_t major, minor;
	uint64_t ino;
};

struct mapping {
	uint64_t low, high, offset;
	struct file_id file_id;
	char name[64]; /* "[libc.so.6]", "[anonymous]" */
	/* for symbols.c */
	struct file_identity identity; /* .ino 0: unknown */
	bool being_opened, cannot_be_opened;
};

/* May block on the process. Returns the number of mappings; 0: none, or unreadable. */
size_t code_map_read(uint32_t host_pid, struct mapping **ret);

/* NULL: no code at the address. */
struct mapping *code_map_find(struct mapping *items, size_t n, uint64_t address);

#endif
