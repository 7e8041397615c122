/* SPDX-License-Identifier: Apache-2.0 */
/* Where a process has code: the executable mappings in /proc/PID/maps, in order. */
#ifndef UNDERSPAN_PROBE_CODE_MAP_H
#define UNDERSPAN_PROBE_CODE_MAP_H

#include "probe/binaries.h"
#include "util.h"

/* Where a file lies, as /proc/PID/maps says it; that is not what stat() says on every file system.
 */
struct place {
	uint32_t major, minor;
	uint64_t ino;
};

struct mapping {
	uint64_t low, high, offset;
	struct place place;
	char name[64]; /* "[libc.so.6]", "[anonymous]" */
	/* for symbols.c */
	struct file_identity identity; /* .ino 0: not known */
	bool being_opened, cannot_be_opened;
};

/* May have to wait for the process. Returns how many there are, 0 also when it cannot be read. */
size_t code_map_read(uint32_t host_pid, struct mapping **ret);

/* NULL: there is no code. */
struct mapping *code_map_find(struct mapping *items, size_t n, uint64_t address);

#endif
