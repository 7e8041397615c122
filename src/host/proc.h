/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of /proc/PID for processes of any user, which may be starting or may exit between reads.
 * Texts are untrusted: bounded, possibly truncated.
 */
#ifndef UNDERSPAN_HOST_PROC_H
#define UNDERSPAN_HOST_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/* Reads /proc/PID/NAME into buf, NUL-terminated, truncated at size. Returns the length
 * or -errno. */
ssize_t proc_read(uint32_t pid, const char *name, char *buf, size_t size);

/*
 * The running program: a descriptor (O_PATH) for file_identity.h, never blocking, or -errno.
 * *ret_path: its path without " (deleted)".
 */
int proc_find_exe(uint32_t pid, char *ret_path, size_t path_size);

/* Whether the file name is a Python's. */
bool proc_names_python(const char *path);

/* Opens a found file for reading. fd or -errno. */
int proc_open_found(int path_fd);

/*
 * Opens the regular file at `path` as seen by the process (0: the agent), links resolved within its
 * root: fd, -ENOTSUP: reading may block on a program (FUSE), or -errno.
 */
int proc_open_in_root(uint32_t pid, const char *path);

/* The same for a mapped file. `path`: used if map_files is not permitted; NULL: unknown. */
int proc_open_mapping(uint32_t pid, uint64_t low, uint64_t high, const char *path);

/*
 * The libpython mapped by the process, or without one a python program (`ld.so python3`, where the
 * dynamic loader is the executable), like proc_find_exe(): through map_files (correct for deleted
 * files and other mount namespaces) or, without permission, through the process's root. -ENOENT:
 * none mapped now; -ENAMETOOLONG: only the path leads to it, and is longer than PATH_MAX. May block
 * on the process.
 */
int proc_find_libpython(uint32_t pid, char *ret_path, size_t path_size);

/*
 * Address of the first byte of a mapped file (program or libpython), given by stat()'s `dev` and
 * `ino`. 0, -ENOENT or -errno.
 */
int proc_file_base(uint32_t pid, uint64_t dev, uint64_t ino, uint64_t *ret_address);

/* A line of /proc/PID/maps; `name` points into the line. */
struct proc_mapping {
	uint64_t low, high, offset, ino;
	uint32_t major, minor; /* of the file's device, as shown in maps */
	bool executable, deleted;
	const char *name; /* without " (deleted)"; "": none */
	const char *path; /* path of the file; NULL: no file. Longer than PATH_MAX: "/<cut>/NAME" */
};
bool proc_parse_mapping(char *line, struct proc_mapping *ret);

/*
 * Calls `each` for the process's mappings in order, until nonzero, which is returned; 0: end;
 * -errno: unreadable. May block on the process.
 */
typedef int (*proc_each_mapping)(const struct proc_mapping *mapping, void *context);
int proc_walk_mappings(uint32_t pid, size_t max_lines, proc_each_mapping each, void *context);

/* The mapping of an address; `path` receives its name. 0, -EFAULT: none, or -errno. */
int proc_find_mapping(uint32_t pid, uint64_t address, struct proc_mapping *ret, char *path,
		      size_t size);

/* Field 22 of /proc/PID/stat, clock ticks since boot: distinguishes processes with a reused pid. 0:
 * gone. */
uint64_t proc_start_time(uint32_t pid);

/* -ESRCH with why: the process is not there, or /proc does not show it to this user (hidepid). */
int proc_say_missing(uint32_t pid, struct why *why);
uint64_t proc_parse_start_time(const char *stat);

/*
 * A number for the party that is charged for reads of a process: the user within a container or
 * service (cgroup_tenant(): the upper half, 0: none). UINT64_MAX: the process is gone.
 */
uint64_t proc_owner(uint32_t pid);

/* Field 4 of /proc/PID/stat: the parent process. 0: gone, or none. */
uint32_t proc_parent(uint32_t pid);

/* True also for the process itself. */
bool proc_descends_from(uint32_t pid, uint32_t ancestor);

/* Calls `each` for every process in /proc. */
void proc_for_each(void (*each)(uint32_t pid, void *context), void *context);

#endif
