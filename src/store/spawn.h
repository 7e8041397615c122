/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store as a child process: `underspan store` run as an unprivileged user that holds no
 * capabilities and dies with its parent.
 */
#ifndef UNDERSPAN_STORE_SPAWN_H
#define UNDERSPAN_STORE_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util.h"

struct store_spawn_options {
	const char *path;	   /* the store's directory; made when missing */
	const char *libchdb;	   /* NULL: searched, see store/engine.h */
	uint64_t start_timeout_ns; /* 0: 60 s */
};

struct store_child {
	pid_t pid; /* 0: a store that was there already serves the directory; not ours to stop */
	int pidfd; /* -1 with pid 0; readable when the child has ended */
	char *path, *url, *user, *password; /* heap */
};

/*
 * Starts a store for the directory and waits until it answers, or takes the one that already does.
 * As root the child runs as user `underspan` (or nobody) and the directory is given to that user.
 * Must be called before the process has threads that take locks (it forks and execs).
 */
int store_spawn(const struct store_spawn_options *options, struct store_child *ret_child,
		struct why *why);

/* SIGTERM, up to 5 s, SIGKILL. Returns true if it ended by itself. Frees the strings; idempotent.
 */
bool store_stop(struct store_child *child);

#endif
