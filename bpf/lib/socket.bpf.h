/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a file descriptor to a socket, and addresses of sockets. */
#ifndef UNDERSPAN_SOCKET_BPF_H
#define UNDERSPAN_SOCKET_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "lib/file.bpf.h"
#include "lib/task.bpf.h"

#define AF_UNIX	 1
#define AF_INET	 2
#define AF_INET6 10

static __always_inline bool file_is_socket(struct file *file)
{
	return file_type(file) == S_IFSOCK;
}

/* The socket behind `file`, which must be a socket. */
static __always_inline struct sock *file_sock(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);

	return BPF_CORE_READ(socket, sk);
}

/* The file behind a descriptor of the current process, NULL when there is none. */
static __always_inline struct file *current_fd_to_file(__u32 fd)
{
	if (has_typed_current())
		return fd_to_file(bpf_get_current_task_btf(), fd);
	return untyped_fd_to_file((struct task_struct *)bpf_get_current_task(), fd);
}

/* The socket behind a descriptor of the current process, NULL when there is none. */
static __always_inline struct sock *fd_to_sock(__u32 fd)
{
	struct file *file = current_fd_to_file(fd);

	return file && file_is_socket(file) ? file_sock(file) : NULL;
}

/* The same as a name to look up: of a file that is no socket, any number. */
static __always_inline __u64 fd_to_sock_name(__u32 fd)
{
	struct file *file = current_fd_to_file(fd);

	return file ? (__u64)file_sock(file) : 0;
}

/* Writes an IPv4 address as ::ffff:a.b.c.d into 16 zeroed bytes. */
static __always_inline void ip_set_v4(__u8 ip[16], __be32 address)
{
	ip[10] = ip[11] = 0xff;
	__builtin_memcpy(ip + 12, &address, sizeof(address));
}

#endif
