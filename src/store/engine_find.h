/* SPDX-License-Identifier: Apache-2.0 */
/* Where the engine of a store is: libchdb.so, otherwise an installed clickhouse program. */
#ifndef UNDERSPAN_STORE_ENGINE_FIND_H
#define UNDERSPAN_STORE_ENGINE_FIND_H

#include <limits.h>
#include <stdbool.h>

#include "base/util.h"

/* The user's choice; both NULL: search. */
struct engine_choice {
	const char *libchdb, *program; /* at most one is given */
};

struct engine_place {
	char path[PATH_MAX];
	bool is_program;
};

/*
 * `libchdb` or $UNDERSPAN_LIBCHDB, or `program`, if given (no other place is searched). Otherwise
 * libchdb.so in ../lib/underspan beside the program, /usr/lib/underspan, /usr/local/lib/underspan,
 * and cache/libchdb under the program's build directory. Otherwise clickhouse or clickhouse-local
 * in PATH, /usr/bin, /usr/local/bin and /opt/clickhouse. -ENOENT: the message says how to get an
 * engine.
 */
int engine_find(const struct engine_choice *choice, struct engine_place *ret_place,
		struct why *why);

#endif
