/* SPDX-License-Identifier: Apache-2.0 */
/* Type of functions run in a reader process (reader_process.h). */
#ifndef UNDERSPAN_WORKERS_READ_FUNCTION_H
#define UNDERSPAN_WORKERS_READ_FUNCTION_H

#include <stddef.h>

enum { READ_ARGUMENT_MAX = 160 << 10, READER_CPU_SECONDS = 5 };

/* Data that do not fit into a flat struct. */
struct read_extra {
	/*
	 * In: descriptor to pass, or -1; the function gets a copy. Out: a descriptor opened by the
	 * function, owned by the caller, or the input.
	 */
	int fd;
	/* Out: heap memory returned by the function; the caller frees its copy. */
	void *data;
	size_t data_size;
};

typedef void (*read_function)(void *argument, struct read_extra *extra);

#endif
