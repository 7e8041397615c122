/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uprobe registration reads the probed pages while all fork() calls of the host are blocked. Before
 * probes are set, a reader process, which can be abandoned, reads the same pages into the page
 * cache.
 */
#ifndef UNDERSPAN_PROCESS_TOUCH_H
#define UNDERSPAN_PROCESS_TOUCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "process/binary.h"

/* 0: pages are in memory, or the binary is not `unsure`. */
int binary_touch(const struct python_binary *binary, const uint64_t *offsets, size_t n,
		 struct why *why);

#endif
