/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket at HOST:PORT; on loopback, unless somebody says that it is meant otherwise. */
#ifndef UNDERSPAN_LISTEN_H
#define UNDERSPAN_LISTEN_H

#include "util.h"

/*
 * `key` is the option that the address comes from, for what `why` says. -EINVAL: no address, or
 * one that is not loopback without `anywhere`; -EADDRINUSE; else -errno.
 */
int listen_open(const char *key, const char *address, bool anywhere, int *ret_fd, struct why *why);

#endif
