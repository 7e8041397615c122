/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and removes DIR/endpoint for the unprivileged store: a small child process, running as
 * DIR's owner without capabilities, does both on request.
 */
#ifndef UNDERSPAN_STORE_KEEPER_H
#define UNDERSPAN_STORE_KEEPER_H

#include <sys/types.h>

#include "store/directory.h"

struct keeper {
	const struct store_directory *directory;
	const char *url;
	pid_t pid; /* 0: none */
	int fd;
};

/* `directory` and `url` must outlive the keeper. Signals must be blocked. */
int keeper_start(struct keeper *k, const struct store_directory *directory, const char *url,
		 struct why *why);
int keeper_publish(struct keeper *k, struct why *why);
/* Removes the endpoint and ends the child; idempotent. After SIGKILL of the store the
 * file remains. */
void keeper_stop(struct keeper *k);

#endif
