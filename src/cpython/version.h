/* SPDX-License-Identifier: Apache-2.0 */
/* The CPython version of a file: from constants in the file, never from the file's name alone. */
#ifndef UNDERSPAN_CPYTHON_VERSION_H
#define UNDERSPAN_CPYTHON_VERSION_H

#include "elf/elf_file.h"
#include "cpython/image.h"

/*
 * Fills version and free_threaded of `image`, whose runtime_* must be known. `symbols` is
 * the table that names the runtime. -ENOTSUP when the version is unknown or not supported.
 */
int python_version_find(struct elf_file *elf, const struct elf_symbols *symbols,
			const char *path_hint, struct python_image *image, struct why *why);

#endif
