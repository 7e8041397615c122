/* SPDX-License-Identifier: Apache-2.0 */
/* The spool's directory, locked by one agent at a time. */
#ifndef UNDERSPAN_PIPELINE_SPOOL_SPOOL_DIRECTORY_H
#define UNDERSPAN_PIPELINE_SPOOL_SPOOL_DIRECTORY_H

#include "pipeline/spool/spool_file.h"

/*
 * Opens and locks the directory, creating missing parents. -EBUSY: locked by a second agent. The
 * caller owns the fd; closing the fd releases the lock.
 */
int spool_directory_open(const char *path, int *ret_dir, struct why *why);

/* Whether the directory, or the next one above that exists, can be written to; creates nothing. */
int spool_directory_check(const char *path, struct why *why);

/* Name of a batch's file before the file is complete. */
void spool_unfinished_name(const char *name, char ret[SPOOL_NAME_MAX + 4]);

/*
 * Names of all batches: heap, sorted by order, the prefix of all names. Removes unfinished files.
 */
int spool_directory_list(int dir, struct why *why, char ***ret_names, size_t *ret_n);

#endif
