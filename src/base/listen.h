/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket at HOST:PORT, restricted to loopback unless explicitly allowed. */
#ifndef UNDERSPAN_BASE_LISTEN_H
#define UNDERSPAN_BASE_LISTEN_H

#include "base/util.h"

/*
 * `key`: option name for messages. -EINVAL: bad address, or not loopback without `anywhere`;
 * -EADDRINUSE; other -errno.
 */
int listen_open(const char *key, const char *address, bool anywhere, int *ret_fd, struct why *why);

/* The same checks of the address; opens nothing. */
int listen_check(const char *key, const char *address, bool anywhere, struct why *why);

#endif
