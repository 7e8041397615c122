/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's directory: ownership, lock, password and endpoint.
 *
 *   DIR/                  owned by the creating user, writable by the owner only
 *   DIR/underspan-store   marker: underspan created DIR; without the marker nothing in DIR is
 * changed DIR/lock              locked by the serving process; contains its pid DIR/password 0600,
 * user "default" DIR/endpoint          the URL, one line; exists while DIR is served DIR/socket
 * 0600, unix socket for DIR's owner DIR/engine/           0700, the engine's files; owned by the
 * engine's user if root created DIR
 *
 * DIR is checked once and held open. Files are opened relative to that descriptor, without
 * following links, and only regular files of DIR's owner are accepted. Changes by the engine's user
 * in engine/ cannot affect these files.
 */
#ifndef UNDERSPAN_STORE_DIRECTORY_H
#define UNDERSPAN_STORE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/util.h"

enum { STORE_PASSWORD_LEN = 32, STORE_URL_MAX = 128, STORE_SOCKET_MAX = 48 };

struct store_directory {
	int fd;		  /* -1: not open */
	const char *path; /* as given by the user, for messages; borrowed */
	bool passing;	  /* its store ends with a question */
};

/*
 * Opens a store of the calling user. With `make`, creates a missing directory and accepts an empty
 * directory of the user; without, -ENOENT. -EINVAL: not a store, or owned by another user; nothing
 * has been changed. A store of version 0.x, with the engine's files in DIR itself, is migrated.
 */
int store_directory_open(const char *path, bool make, struct store_directory *ret_directory,
			 struct why *why);
void store_directory_close(struct store_directory *d);

/* Whether a writing command would refuse DIR by its name or its files; changes nothing. */
int store_directory_check(const char *path, struct why *why);

/* -EBUSY, with the pid in the message: another process serves DIR. The lock is held while the
 * descriptor is open.
 */
int store_directory_lock(const struct store_directory *d, int *ret_fd, struct why *why);

/* Whether some process holds the lock now. */
bool store_directory_is_locked(const struct store_directory *d);

/* Reads the password; with `make`, generates a missing password. `ret` has STORE_PASSWORD_LEN + 1
 * bytes. */
int store_directory_password(const struct store_directory *d, bool make, char *ret_password,
			     struct why *why);

int store_directory_publish(const struct store_directory *d, const char *url, struct why *why);
void store_directory_unpublish(const struct store_directory *d);

/* -ENOENT: no endpoint is published. `ret_passing`: that store ends with a question. */
int store_directory_endpoint(const struct store_directory *d, char *ret_url, size_t size,
			     bool *ret_passing);

/* Path of DIR/socket through the open descriptor: short enough for sun_path, and immune
 * to renames. */
void store_directory_socket(const struct store_directory *d, char *ret_path, size_t size);

/* A socket listening at DIR/socket; replaces the socket of a killed store. The lock must
 * be held. */
int store_directory_listen(const struct store_directory *d, int *ret_fd, struct why *why);

/*
 * Opens or creates DIR/engine. Root gives the directory to user underspan, or to user "nobody". The
 * engine must run as its owner. The lock must be held.
 */
int store_directory_engine(const struct store_directory *d, int *ret_fd, struct why *why);

#endif
