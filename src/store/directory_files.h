/* SPDX-License-Identifier: Apache-2.0 */
/* Safe access to the files of a store's directory, for directory.c and directory_old.c. */
#ifndef UNDERSPAN_STORE_DIRECTORY_FILES_H
#define UNDERSPAN_STORE_DIRECTORY_FILES_H

#include <pwd.h>
#include <sys/stat.h>

#include "base/util.h"

struct store_directory;

/*
 * A descriptor or -errno. -EPERM, -ELOOP: the file is a link, has several hard links, is not
 * regular (a FIFO cannot block the caller), is not owned by `owner`, or is writable by group or
 * world.
 */
int store_file_open(int directory, const char *name, int flags, uid_t owner);

/* Text up to size - 1 bytes; -EBADMSG: the text contains a NUL. */
int store_file_read(int directory, const char *name, uid_t owner, char *buf, size_t size);

/* Mode 0600; written to a temporary file, then renamed; 0 or -errno. */
int store_file_write(int directory, const char *name, const char *text);

/* Says why a file cannot be used, for the errors of the functions above; returns the error. */
int store_file_fail(const char *directory, const char *name, const char *doing, int err,
		    struct why *why);

/* The user that runs the engine when started by root; NULL: no such user. */
const struct passwd *store_user(void);

/* Writes the marker. 0 or -errno. */
int store_directory_mark(const struct store_directory *d);

/* Whether a directory without the marker holds only files of version 0.x. */
bool store_is_old(int fd, const struct stat *st);

/* Whether version 0.x has run on a migrated store and created a second engine beside engine/. */
bool store_was_old_again(int fd);

/* Migrates a store of version 0.x: moves the engine's files into engine/, then writes
 * the marker. */
int store_rearrange(const struct store_directory *d, const struct stat *st, struct why *why);

#endif
