/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of stacks (`ulimit -s`), inherited from whoever started the program. */
#ifndef UNDERSPAN_BASE_STACK_LIMIT_H
#define UNDERSPAN_BASE_STACK_LIMIT_H

#include "base/util.h"

/*
 * Before any thread: raises a low limit as far as allowed, for this process and its children, and
 * the stacks of further threads, the engine's among them.
 */
void stack_limit_raise(void);

/* -ENOMEM with why: too low for the engine, which would end by a signal. */
int stack_limit_check(struct why *why);

#endif
