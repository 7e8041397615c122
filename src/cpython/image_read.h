/* SPDX-License-Identifier: Apache-2.0 */
/* Reads image.h's data from the file of a Python executable or library. */
#ifndef UNDERSPAN_CPYTHON_IMAGE_READ_H
#define UNDERSPAN_CPYTHON_IMAGE_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "cpython/image.h"

/*
 * Reads the ELF file `fd` (borrowed). `path_hint`: for messages, and for the version if unknown
 * from the file. `host_pid`: see elf_file.h. Returns 0; -ENOENT: not a Python (no _PyRuntime; the
 * normal case, `why` unset); with `why`: -ENOTSUP: refused Python, -EINVAL: broken file, other
 * -errno.
 */
int python_image_read_of(uint32_t host_pid, int fd, const char *path_hint, struct python_image *ret,
			 struct why *why);
int python_image_read(int fd, const char *path_hint, struct python_image *ret, struct why *why);

/*
 * Whether the ELF file `fd` needs a libpython: then the interpreter is the library, not the
 * executable. False for broken files.
 */
bool python_image_needs_libpython(int fd);

#endif
