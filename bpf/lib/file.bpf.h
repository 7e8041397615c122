/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files behind descriptors, and their types. */
#ifndef UNDERSPAN_FILE_BPF_H
#define UNDERSPAN_FILE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* bits of inode.i_mode (include/uapi/linux/stat.h) */
enum {
	S_IFMT = 0170000,
	S_IFSOCK = 0140000,
	S_IFREG = 0100000,
	S_IFBLK = 0060000,
	S_IFDIR = 0040000,
	S_IFIFO = 0010000,
};

/*
 * The file behind a descriptor of the task's process, NULL when there is none. `task`: a pointer
 * with a type known to the verifier, since reads by bpf_probe_read_kernel() take twice the time.
 */
static __always_inline struct file *fd_to_file(struct task_struct *task, __u32 fd)
{
	struct fdtable *table = task->files->fdt;
	struct file *file = NULL;

	if (fd < table->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file;
}

/* The same for any pointer. */
static __always_inline struct file *untyped_fd_to_file(struct task_struct *task, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL;

	if (fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file;
}

static __always_inline __u32 file_type(struct file *file)
{
	return BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
}

/* Is the file a process (pidfd_open())? Known since 6.9, where these files have a file system. */
static __always_inline bool file_is_pidfd(struct file *file)
{
	enum { PIDFS_MAGIC = 0x50494446 }; /* include/uapi/linux/magic.h */

	return BPF_CORE_READ(file, f_inode, i_sb, s_magic) == PIDFS_MAGIC;
}

/* Whether a socket waits for connections, of any family. */
static __always_inline bool socket_listens(struct file *file)
{
	enum { LISTEN = 10 }; /* TCP_LISTEN, include/net/tcp_states.h; also of other families */
	struct socket *socket = BPF_CORE_READ(file, private_data);

	return BPF_CORE_READ(socket, sk, __sk_common.skc_state) == LISTEN;
}

#endif
