/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The types of files: bits of inode.i_mode (include/uapi/linux/stat.h). */
#ifndef UNDERSPAN_FILE_BPF_H
#define UNDERSPAN_FILE_BPF_H

enum {
	S_IFMT = 0170000,
	S_IFSOCK = 0140000,
	S_IFREG = 0100000,
	S_IFBLK = 0060000,
	S_IFDIR = 0040000,
	S_IFIFO = 0010000,
};

#endif
