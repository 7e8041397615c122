/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of /proc/PID for processes that may belong to anybody, be half-started or vanish in
 * between. Every text is treated as hostile: bounded, never trusted to be whole.
 */
#ifndef UNDERSPAN_PROC_H
#define UNDERSPAN_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads /proc/PID/NAME into buf, NUL-terminated, cut at size. Returns the length or -errno. */
ssize_t proc_read(uint32_t pid, const char *name, char *buf, size_t size);

/*
 * The running program: a descriptor (O_PATH) that can be asked what it is (file_identity.h),
 * without waiting for anybody, or -errno. *ret_path names it (" (deleted)" cut).
 */
int proc_find_exe(uint32_t pid, char *ret_path, size_t path_size);

/* Opens for reading what was found. fd or -errno. */
int proc_open_found(int path_fd);

/*
 * The regular file of this path as the process (0: the agent) sees it, links resolved within its
 * root: fd, -ENOTSUP for what cannot be read without waiting for a program, or -errno.
 */
int proc_open_in_root(uint32_t pid, const char *path);

/* The same of a file that is mapped. `path`: where map_files is not permitted; NULL: not known. */
int proc_open_mapping(uint32_t pid, uint64_t low, uint64_t high, const char *path);

/*
 * The libpython that the process has mapped, as proc_find_exe() has it, through map_files (right
 * also for deleted files and other mount namespaces) or, where that is not permitted, through the
 * process's root. -ENOENT when none is mapped (yet). May have to wait for the process.
 */
int proc_find_libpython(uint32_t pid, char *ret_path, size_t path_size);

/*
 * Where the first byte of a file is mapped: the running program or libpython, of which `dev` and
 * `ino` are as stat() tells them. 0, -ENOENT or -errno.
 */
int proc_file_base(uint32_t pid, uint64_t dev, uint64_t ino, uint64_t *ret_address);

/* A line of /proc/PID/maps, of which `name` stays a part. */
struct proc_mapping {
	uint64_t low, high, offset, ino;
	uint32_t major, minor; /* of the file's device, as the kernel shows it there */
	bool executable, deleted;
	const char *name; /* without " (deleted)"; "" when there is none */
	const char *path; /* the same; NULL: no file */
};
bool proc_parse_mapping(char *line, struct proc_mapping *ret);

/*
 * Calls `each` for the mappings of the process, in their order, until it returns something else
 * than 0, which is returned; 0 at the end, -errno when they cannot be read. May have to wait for
 * the process.
 */
typedef int (*proc_each_mapping)(const struct proc_mapping *mapping, void *context);
int proc_walk_mappings(uint32_t pid, size_t max_lines, proc_each_mapping each, void *context);

/* The mapping that an address lies in; `path` has its name. 0, -EFAULT: none, or -errno. */
int proc_find_mapping(uint32_t pid, uint64_t address, struct proc_mapping *ret, char *path,
		      size_t size);

/* Field 22 of /proc/PID/stat, clock ticks since boot: tells two users of one pid apart. 0: gone. */
uint64_t proc_start_time(uint32_t pid);
uint64_t proc_parse_start_time(const char *stat);

/* Calls `each` for every process of the host that /proc shows. */
void proc_for_each(void (*each)(uint32_t pid, void *context), void *context);

#endif
