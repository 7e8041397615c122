/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Privileges dropped by the store's process before the engine is loaded: root, all capabilities
 * and, with Landlock, access to files outside the engine's directory.
 */
#ifndef UNDERSPAN_STORE_CONFINE_H
#define UNDERSPAN_STORE_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/*
 * As root, switches to the owner of `engine` (DIR/engine, open); other users are kept. Afterwards:
 * no capabilities, no_new_privs, working directory /. With Landlock the process may write only
 * below engine/; read there, in /proc, /sys, system libraries, time zones and `library`; execute
 * nothing but `library` if that is a program; connect to no TCP port. Irreversible, so the process
 * must be single-threaded. `ret_path`: path of the directory as seen by the engine's user.
 */
int store_confine(int engine, int library, bool is_program, char *ret_path, size_t size,
		  struct why *why);

#endif
