/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the output terminal. */
#ifndef UNDERSPAN_BASE_TERMINAL_H
#define UNDERSPAN_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether escape sequences are allowed: a terminal other than "dumb", without NO_COLOR. */
static inline bool terminal_obeys(int fd)
{
	const char *kind = getenv("TERM"), *none = getenv("NO_COLOR");

	return isatty(fd) && kind && *kind && strcmp(kind, "dumb") != 0 && !(none && *none);
}

#endif
