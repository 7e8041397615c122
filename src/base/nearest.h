/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": the name nearest to a mistyped word. */
#ifndef UNDERSPAN_BASE_NEAREST_H
#define UNDERSPAN_BASE_NEAREST_H

#include <stddef.h>

struct nearest {
	const char *typed; /* borrowed, as are the names */
	size_t len;
	const char *name; /* NULL: no name is near */
	size_t distance;
};

/* Ignores case; dashes equal underscores. */
void nearest_begin(struct nearest *n, const char *typed, size_t len);
void nearest_try(struct nearest *n, const char *name);

/*
 * End of a message: "; did you mean PREFIXNAME?" if a name is near, otherwise `otherwise`. Returns
 * `buf`.
 */
char *nearest_hint(const struct nearest *n, const char *prefix, const char *otherwise, char *buf,
		   size_t size);

#endif
