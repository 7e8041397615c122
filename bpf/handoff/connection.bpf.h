/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Followed connections: maps, creation and deletion. A connection is keyed by its socket, which
 * stays the same for all descriptors and processes. The accepting process's descriptor leads from
 * the entry of a system call to the socket.
 */
#ifndef UNDERSPAN_HANDOFF_CONNECTION_BPF_H
#define UNDERSPAN_HANDOFF_CONNECTION_BPF_H

#include "handoff/stack.bpf.h"
#include "lib/event.bpf.h"
#include "lib/ports.bpf.h"
#include "lib/socket.bpf.h"
#include "lib/task.bpf.h"
#include "events/handoff.h"

/* Without preallocation: most hosts have few connections, some have very many. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock *, only a name here */
	__type(value, struct handoff_connection);
} handoff_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* host pid << 32 | fd, of the accepting process */
	__type(value, __u64);
} handoff_fds SEC(".maps");

/* PICKED connections. Deleting the entry gives the right to report, so a row is reported once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, __u8);
} handoff_picked SEC(".maps");

/* too big for the BPF stack */
static const struct handoff_connection empty_connection;

volatile __u64 min_duration_ns = 0; /* user space may change the value at any time */

static __always_inline __u64 fd_key(__u32 tgid, __u32 fd)
{
	return (__u64)tgid << 32 | fd;
}

static __always_inline bool readable(__u64 sock)
{
	return BPF_CORE_READ((struct sock *)sock, sk_receive_queue.qlen) > 0;
}

static __always_inline __u64 socket_inode(__u64 sock)
{
	return BPF_CORE_READ((struct sock *)sock, sk_socket, file, f_inode, i_ino);
}

/*
 * Is the socket still the one that was accepted? The end of a TCP socket is seen (tcp_gone()). The
 * end of a unix socket is not, and its address may be reused.
 */
static __always_inline bool is_same(const struct handoff_connection *conn, __u64 sock)
{
	return conn->event.family != AF_UNIX || socket_inode(sock) == conn->inode;
}

static __always_inline void read_addresses(struct handoff_event *event, struct sock *sock)
{
	event->family = BPF_CORE_READ(sock, __sk_common.skc_family);
	if (event->family == AF_INET) {
		ip_set_v4(event->peer_ip, BPF_CORE_READ(sock, __sk_common.skc_daddr));
	} else if (event->family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)event->peer_ip, sock,
				   __sk_common.skc_v6_daddr);
	} else {
		return;
	}
	event->local_port = BPF_CORE_READ(sock, __sk_common.skc_num);
	event->peer_port = __builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport));
}

static __always_inline void count_lost(void)
{
	stat_add(STAT_SEEN, 1);
	stat_add(STAT_LOST_STATE, 1);
}

/* Deletes a connection whose socket is gone, or which will not be handed over. */
static __always_inline void connection_delete(__u64 sock, struct handoff_connection *conn)
{
	__u64 key = fd_key(conn->host_pid, conn->event.fd);
	__u64 *named = bpf_map_lookup_elem(&handoff_fds, &key);

	if (named && *named == sock)
		bpf_map_delete_elem(&handoff_fds, &key);
	bpf_map_delete_elem(&handoff_picked, &sock);
	bpf_map_delete_elem(&handoff_conns, &sock);
}

/*
 * A descriptor is reused. A former unix socket is gone; a former TCP socket may live on in a child
 * process.
 */
static __always_inline void fd_reused(__u64 key, __u64 sock)
{
	__u64 *named = bpf_map_lookup_elem(&handoff_fds, &key), former;
	struct handoff_connection *conn;

	if (!named)
		return;
	former = *named;
	conn = former == sock ? NULL : bpf_map_lookup_elem(&handoff_conns, &former);
	if (!conn || conn->event.family != AF_UNIX)
		return;
	if (conn->state == PICKED) /* picked up, but no byte was ever read */
		count_lost();
	bpf_map_delete_elem(&handoff_picked, &former);
	bpf_map_delete_elem(&handoff_conns, &former);
}

/* accept() returned a connection: the wait begins. */
static __always_inline void connection_accepted(__u32 fd)
{
	__u64 key = fd_key(current_tgid(), fd), sock;
	struct handoff_connection *conn;
	struct event_header *header;

	sock = (__u64)fd_to_sock(fd);
	if (!sock)
		return;
	fd_reused(key, sock);
	port_accepts((struct sock *)sock);
	bpf_map_delete_elem(&handoff_picked, &sock);
	if (bpf_map_update_elem(&handoff_conns, &sock, &empty_connection, BPF_ANY) ||
	    bpf_map_update_elem(&handoff_fds, &key, &sock, BPF_ANY)) {
		bpf_map_delete_elem(&handoff_conns, &sock);
		count_lost();
		return;
	}
	conn = bpf_map_lookup_elem(&handoff_conns, &sock);
	if (!conn)
		return;
	header = &conn->event.header;
	header_set_current(header);
	conn->host_pid = header->host_pid;
	conn->event.main_tid = header->tid;
	conn->event.main_host_tid = header->host_tid;
	conn->event.main_ident = header->ident;
	__builtin_memcpy(conn->event.main_comm, header->comm, sizeof(header->comm));
	conn->event.fd = fd;
	conn->event.queue = HANDOFF_QUEUE_ACCEPT;
	read_addresses(&conn->event, (struct sock *)sock);
	conn->inode = socket_inode(sock);
	header->start_ns = bpf_ktime_get_ns();
	conn->state = WAITING;
	/* data may have arrived before the entry existed: the receive queue tells */
	if (readable(sock))
		conn->first_byte_ns = header->start_ns;
}

#endif
