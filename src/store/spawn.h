/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store as a child process: `underspan store` as an unprivileged user, without capabilities,
 * killed at the parent's death.
 */
#ifndef UNDERSPAN_STORE_SPAWN_H
#define UNDERSPAN_STORE_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"
#include "store/engine_find.h"

struct store_spawn_options {
	const char *path; /* the store's directory */
	bool make;	  /* create if missing; otherwise required */
	bool stays;	  /* used for hours: the store of a question is waited for, not used */
	struct engine_choice engine;
	uint64_t start_timeout_ns; /* 0: 60 s */
};

struct store_child {
	pid_t pid;     /* 0: another process already serves the directory and is not stopped */
	int pidfd;     /* -1 if pid is 0; readable after the child's end */
	int directory; /* must be open while `socket` is used */
	char *url, *socket, *user, *password; /* heap; clients should use the socket */
};

/*
 * Starts a store for the directory and waits for its first answer, or uses a store already running.
 * Errors of the directory: see store_directory_open(). Forks and execs: must be called before the
 * process has threads that take locks.
 */
int store_spawn(const struct store_spawn_options *options, struct store_child *ret_child,
		struct why *why);

/* SIGTERM, up to 5 s, SIGKILL. True: ended without SIGKILL. Frees the strings; idempotent. */
bool store_stop(struct store_child *child);

#endif
