/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for locks of a window of a database, as the report of locks.h. */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_LOCKS_STORED_H
#define UNDERSPAN_COMMANDS_OFFCPU_LOCKS_STORED_H

#include "commands/offcpu/locks.h"
#include "commands/window.h"

/* *ret is released by the caller. */
int locks_stored(struct window *window, json_t **ret, struct why *why);

#endif
