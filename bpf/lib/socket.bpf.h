/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a descriptor to its socket, and the socket's addresses. */
#ifndef UNDERSPAN_SOCKET_BPF_H
#define UNDERSPAN_SOCKET_BPF_H

#include "underspan.bpf.h"

#define AF_UNIX	 1
#define AF_INET	 2
#define AF_INET6 10
#define S_IFMT	 0170000
#define S_IFSOCK 0140000

/* The socket behind a descriptor of the current process, NULL when it is none. */
static __always_inline struct sock *fd_to_sock(__u32 fd)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files, *file = NULL;
	struct socket *socket;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

/* An IPv4 address as IPv6 writes it, ::ffff:a.b.c.d. The 16 bytes are zeroed beforehand. */
static __always_inline void ip_set_v4(__u8 ip[16], __be32 address)
{
	ip[10] = ip[11] = 0xff;
	__builtin_memcpy(ip + 12, &address, sizeof(address));
}

#endif
