/* SPDX-License-Identifier: Apache-2.0 */
/* Which file it is, asked of the kernel alone: whoever serves or stores the file is not waited for.
 */
#ifndef UNDERSPAN_PROBE_FILE_IDENTITY_H
#define UNDERSPAN_PROBE_FILE_IDENTITY_H

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
int file_identify(int fd, uint32_t pid, struct file_identity *ret);

/* The same question of a folder: -ENOTSUP, 0 or -errno. */
int file_check_served(int fd, uint32_t pid);

#endif
