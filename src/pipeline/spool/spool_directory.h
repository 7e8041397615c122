/* SPDX-License-Identifier: Apache-2.0 */
/* The spool's directory, locked by one agent at a time. */
#ifndef UNDERSPAN_PIPELINE_SPOOL_SPOOL_DIRECTORY_H
#define UNDERSPAN_PIPELINE_SPOOL_SPOOL_DIRECTORY_H

#include "base/util.h"

/*
 * Opens and locks the directory, creating missing parents. -EBUSY: locked by another agent. The
 * caller owns the fd; closing it releases the lock.
 */
int spool_directory_open(const char *path, int *ret_dir, struct why *why);

#endif
