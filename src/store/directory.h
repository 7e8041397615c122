/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's directory: who may enter, who serves it now, and the password.
 *
 *   DIR/            0700
 *   DIR/lock        locked by the process that serves it; holds its pid
 *   DIR/password    0600, user "default"
 *   DIR/endpoint    URL and pid, two lines, there while it is served
 *   DIR/data/       the engine's
 */
#ifndef UNDERSPAN_STORE_DIRECTORY_H
#define UNDERSPAN_STORE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "util.h"

enum { STORE_PASSWORD_LEN = 32, STORE_URL_MAX = 128 };

/* Makes it when missing (its parent must exist). */
int store_directory_make(const char *path, struct why *why);

/* -EBUSY with the pid in the sentence when another process serves it. The descriptor is the lock.
 */
int store_directory_lock(const char *path, int *ret_fd, struct why *why);

/* Whether some process holds the lock now. */
bool store_directory_is_locked(const char *path);

/* Reads the password, makes one the first time. `ret` holds STORE_PASSWORD_LEN + 1 bytes. */
int store_directory_password(const char *path, bool make, char *ret_password, struct why *why);

int store_directory_publish(const char *path, const char *url, struct why *why);
void store_directory_unpublish(const char *path);

/* -ENOENT when nothing is published. */
int store_directory_endpoint(const char *path, char *ret_url, size_t size, pid_t *ret_pid);

#endif
