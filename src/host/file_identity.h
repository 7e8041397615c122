/* SPDX-License-Identifier: Apache-2.0 */
/* Which file it is, asked of the kernel alone; and whether a program serves its file system. */
#ifndef UNDERSPAN_HOST_FILE_IDENTITY_H
#define UNDERSPAN_HOST_FILE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A file as the kernel tells files apart, and that it has not been rewritten in place. In an
 * overlay, where what is written to becomes another file of the same number, it has its ctime too.
 */
struct file_identity {
	uint64_t dev, ino, size, mtime_ns;
	uint64_t overlay_ctime_ns; /* 0: in no overlay */
};

/*
 * `fd` may be one that can only be asked (O_PATH); `pid` (0: the agent) has the file in its mounts.
 * 0; -EINVAL: no regular file; -ENOTSUP: a program serves it (FUSE), and opening or reading it
 * would wait for that program as long as it likes; or another -errno. `ret` is set also for
 * -ENOTSUP, and may be NULL.
 */
#define FILE_IS_SERVED                                                                             \
	"the file lies in a file system served by a program (FUSE), which may stall: the file "    \
	"is not read"
int file_identify(int fd, uint32_t pid, struct file_identity *ret);

/*
 * Before a file or folder is opened: -ENOTSUP where a program serves it, or nobody can tell; 0 or
 * -errno. Asks the file system itself: may have to wait for it (reader_process.h).
 */
int file_check_served(int fd, uint32_t pid);

/*
 * Before a probe is set in a file that `pid` runs, `fd` being open for reading: does a program
 * serve the file below an overlay? The kernel may have to read the file to set or remove a probe;
 * until it has, no process of the host can fork. -ENOTSUP: nobody can tell, and a user other than
 * root chose the layers. *ret_unsure: nobody can tell, and root chose them. May have to wait, too.
 */
#define FILE_MAY_BE_SERVED                                                                         \
	"the file lies in an overlay mounted by a user other than root, possibly over FUSE; if "   \
	"the FUSE program stalled, a probe would block every fork on this host"
int file_check_below(int fd, uint32_t pid, bool *ret_unsure);

#endif
