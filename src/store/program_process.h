/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a clickhouse program: descriptors, argument vector, process. See program.c. */
#ifndef UNDERSPAN_STORE_PROGRAM_PROCESS_H
#define UNDERSPAN_STORE_PROGRAM_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/text.h"
#include "base/util.h"

/* Descriptors of the process: /proc/self/fd/N in its arguments and statements. */
enum { PROGRAM_SQL_FD = 3, PROGRAM_CONFIG_FD = 4, PROGRAM_ROWS_FD = 5 };

struct program_run {
	int program;		/* the file, open */
	char *const *arguments; /* ends with NULL */
	int sql, config, rows;	/* open files, read from their begin; rows -1: none */
	int output, errors;	/* open files, written */
};

/* Opens a file without a name in the directory; in memory on file systems without O_TMPFILE.
 * -errno. */
int program_scratch(const char *directory);
/* Appends all bytes. 0 or -errno. */
int program_write(int fd, const char *at, size_t len);

/*
 * Starts the process, without a shell and with an empty environment but for TZ. The kernel kills
 * the process at the end of the calling thread. `ret_pidfd` is readable after the process's end.
 */
int program_start(const struct program_run *run, pid_t *ret_pid, int *ret_pidfd);

#endif
