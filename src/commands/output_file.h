/* SPDX-License-Identifier: Apache-2.0 */
/* The file of -o: opened before a measurement, replaced when there are results. */
#ifndef UNDERSPAN_COMMANDS_OUTPUT_FILE_H
#define UNDERSPAN_COMMANDS_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/util.h"

struct output_file {
	const char *path;
	int fd;	   /* -1: not open */
	bool made; /* the file did not exist before */
};

/* Such as /dev/stdout or a pipe, whose name says nothing about a form. */
bool output_is_device(const char *path);

/* An existing file is kept until output_file_begin(). */
int output_file_open(struct output_file *file, const char *path, struct why *why);

/* The emptied file, closed by the caller. NULL: an error, with why and *ret_err. */
FILE *output_file_begin(struct output_file *file, int *ret_err, struct why *why);

/* After an error: removes a file that was made. */
void output_file_drop(const struct output_file *file);

#endif
