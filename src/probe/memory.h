/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a program's file lies in a running process, and reading that process's memory, without
 * stopping it. Processes may be half-started, gone, or hostile: everything read may be a lie.
 */
#ifndef UNDERSPAN_PROBE_MEMORY_H
#define UNDERSPAN_PROBE_MEMORY_H

#include <stdbool.h>

#include "probe/binaries.h"

/*
 * Where the beginning of the file is mapped. What lies at the file's own address `va` lies at
 * *ret_address + va - (own address of the file's beginning). -ENOENT: not mapped (yet), -errno.
 */
int memory_file_base(uint32_t host_pid, const struct file_identity *identity,
		     uint64_t *ret_address);

/* All of it or nothing. */
bool memory_read(uint32_t host_pid, uint64_t address, void *buf, size_t size);

#endif
