/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an open file in a reader process (reader_process.h). */
#ifndef UNDERSPAN_WORKERS_FILE_READING_H
#define UNDERSPAN_WORKERS_FILE_READING_H

#include "base/util.h"
#include "workers/reader_process.h"

struct readable_file {
	const char *path; /* a path that can be opened; with `fd`: /proc/self/fd/N */
	int fd;		  /* -1: only the path */
};

/* First member of the struct passed to the process and back. */
struct reading {
	char path[256];
	int err;
	struct why why;
};

/* In the reader process: makes `path` valid there. */
void reading_begin(struct reading *reading, const struct read_extra *extra);

/* Returns reading->err, with why, or -errno for a stalled file. */
int file_read(const struct readable_file *file, read_function run, struct reading *reading,
	      size_t size, struct why *why);

#endif
