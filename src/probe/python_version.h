/* SPDX-License-Identifier: Apache-2.0 */
/* Which CPython a file is: from constants in it, never from its name alone. */
#ifndef UNDERSPAN_PROBE_PYTHON_VERSION_H
#define UNDERSPAN_PROBE_PYTHON_VERSION_H

#include "probe/elf_file.h"
#include "probe/python.h"

/*
 * Fills version and free_threaded of `image`, whose runtime_* must be known. `symbols` is
 * the table that names the runtime. -ENOTSUP when the version is unknown or not supported.
 */
int python_version_find(struct elf_file *elf, const struct elf_symbols *symbols,
			const char *path_hint, struct python_image *image, struct why *why);

#endif
