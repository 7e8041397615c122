/* SPDX-License-Identifier: Apache-2.0 */
/* The spool's directory, which belongs to one agent at a time. */
#ifndef UNDERSPAN_SPOOL_DIRECTORY_H
#define UNDERSPAN_SPOOL_DIRECTORY_H

#include "util.h"

/*
 * Opened and locked, made if it is not there, with all above it. -EBUSY: another agent has it. The
 * fd is the caller's; closing it gives the lock back.
 */
int spool_directory_open(const char *path, int *ret_dir, struct why *why);

#endif
