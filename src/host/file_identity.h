/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a file, from the kernel alone; and whether a program serves the file system. */
#ifndef UNDERSPAN_HOST_FILE_IDENTITY_H
#define UNDERSPAN_HOST_FILE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The kernel's identity of a file; size and mtime change if the file is rewritten in place. In an
 * overlay a written file becomes a new file with the same inode number: there also the ctime.
 */
struct file_identity {
	uint64_t dev, ino, size, mtime_ns;
	uint64_t overlay_ctime_ns; /* 0: not in an overlay */
};

/*
 * `fd` may be of O_PATH; `pid` (0: the agent) has the file in its mounts. 0, or -errno. -EINVAL:
 * not a regular file. -ENOTSUP: a program serves the file (FUSE), and may stall a process that
 * opens or reads the file. `ret` is set also for -ENOTSUP, and may be NULL.
 */
#define FILE_IS_SERVED                                                                             \
	"the file lies in a file system served by a program (FUSE), which may stall: the file "    \
	"is not read"
int file_identify(int fd, uint32_t pid, struct file_identity *ret);

/*
 * To be called before opening a file or folder. -ENOTSUP: a program serves the file, or this is
 * unknown; otherwise 0 or -errno. Asks the file system, which may stall (reader_process.h).
 */
int file_check_served(int fd, uint32_t pid);

/*
 * To be called before setting a probe in a file that `pid` runs; `fd` is open for reading: whether
 * a program serves the file below an overlay. The kernel may read the file to set or remove a
 * probe, and no process of the host can fork until then. -ENOTSUP: unknown, and a user other than
 * root chose the layers. *ret_unsure: unknown, and root chose the layers. May stall, too.
 */
#define FILE_MAY_BE_SERVED                                                                         \
	"the file lies in an overlay mounted by a user other than root, possibly over FUSE; if "   \
	"the FUSE program stalled, a probe would block every fork on this host"
int file_check_below(int fd, uint32_t pid, bool *ret_unsure);

#endif
