/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The request ledger: a row per request of any HTTP/1 server of a tracked process. Sockets are
 * recognised by the bytes read, so kept-alive connections from before the agent's start count as
 * well. Since 6.3 all hooks except accept() are tracepoints of sockets: untracked processes pay for
 * a comparison of the socket's port (on a read: of the process), and system calls without sockets
 * pay nothing. Before 6.3, writes are seen at the end of five system calls.
 */
#ifndef UNDERSPAN_REQUEST_REQUEST_BPF_H
#define UNDERSPAN_REQUEST_REQUEST_BPF_H

#include "request/write.bpf.h"

#define REQUEST_MSG_PEEK 2

/* include/net/tcp_states.h */
enum {
	REQUEST_TCP_SYN_RECV = 3,
	REQUEST_TCP_FIN_WAIT1 = 4,
	REQUEST_TCP_LAST_ACK = 9,
	REQUEST_TCP_LISTEN = 10,
};

static __always_inline bool request_known(__u64 key)
{
	return bpf_map_lookup_elem(&request_connections, &key) != NULL;
}

/* ---- reads and writes, in the calling thread ---- */

/* The end of any socket's read; since 6.3 (6e6eda44b939). */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(request_recv_length, struct sock *sk, int ret, int flags)
{
	if (request_is_over() || flags & REQUEST_MSG_PEEK)
		return 0;
	if (ret < 0) {
		if (ret == -REQUEST_ECONNRESET && request_unix && process_tracked(current_tgid()))
			request_unix_reset(request_key(sk));
		return 0;
	}
	if (!process_tracked(current_tgid())) {
		if (ret && request_concerns(sk))
			request_read_by_others(request_key(sk));
	} else if (request_listened(sk)) {
		request_unix_look_first();
		/* left over from an older socket at the address; request_read() has no stack for it
		 */
		if (sk->__sk_common.skc_family == AF_UNIX && request_unix &&
		    !request_connection_of(request_key(sk))) {
			request_unix_gone(request_key(sk));
			request_unix_arrived_other(request_key(sk));
		}
		request_read(request_key(sk), ret, request_shut(sk));
	}
	return 0;
}

/* The end of any socket's write; since 6.3 (6e6eda44b939). */
SEC("?tp_btf/sock_send_length")
int BPF_PROG(request_send_length, struct sock *sk, int ret, int flags)
{
	if (request_is_over())
		return 0;
	if (sk->__sk_common.skc_family == AF_UNIX && process_may_be_known(current_tgid()))
		request_tells_loop(request_key(sk));
	if (request_concerns(sk))
		request_wrote(request_key(sk), ret, request_unsent(sk)); /* finds the connection */
	else if (request_may_be_older(sk))
		request_wrote_unread(request_key(sk), ret);
	return 0;
}

/*
 * The bytes that the current read of a TCP socket has taken since the last piece; 0: unknown, the
 * connection is new. Not in the program, whose reads need the stack.
 */
__noinline int request_rcv_progress(__u64 key, __u32 port)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key), unseen = {};
	__u32 n;

	unseen.copied_seq = BPF_CORE_READ((struct tcp_sock *)key, copied_seq);
	if (!arrival) {
		unseen.netns = BPF_CORE_READ((struct sock *)key, __sk_common.skc_net.net, ns.inum);
		unseen.port = port;
		bpf_map_update_elem(&request_arrivals, &key, &unseen, BPF_ANY);
		return 0;
	}
	n = unseen.copied_seq - arrival->copied_seq;
	arrival->copied_seq = unseen.copied_seq;
	return n < 1U << 30 ? n : 0;
}

/*
 * Before 6.3: TCP reads that returned data, once per piece. The length is the progress since the
 * last piece, so the connection must be known.
 */
SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(request_rcv_space, struct sock *sk)
{
	__u16 port = request_local_port(sk);
	__u64 key = request_key(sk);
	__u32 n;

	if (request_is_over() || !request_port_seen(port))
		return 0;
	if (!process_tracked(current_tgid())) {
		request_read_by_others(key);
		return 0;
	}
	n = request_rcv_progress(key, port);
	if (n)
		request_read(key, n, request_shut(sk));
	return 0;
}

/* The socket of the current system call. Not in the programs, whose writes need the stack. */
static __noinline __u64 request_call_key(void)
{
	struct user_call call;

	task_user_call(current_task(), &call);
	return (__u64)fd_to_sock(call.arg1);
}

/* Before 6.3: the end of a system call that may have written to a socket. */
static __always_inline void request_call_returned(long ret)
{
	__u64 key;

	if (request_is_over() || !process_tracked(current_tgid()))
		return;
	key = request_call_key();
	if (!key)
		return;
	if (request_known(key)) {
		request_wrote(key, ret, request_unsent_untyped(key));
		return;
	}
	request_tells_loop(key);
	if (!request_ports_only || request_port_seen(request_local_port((struct sock *)key)))
		request_wrote_unread(key, ret);
}

SEC("?tracepoint/syscalls/sys_exit_sendto")
int request_exit_sendto(struct syscall_exit *ctx)
{
	request_call_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_write")
int request_exit_write(struct syscall_exit *ctx)
{
	request_call_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_writev")
int request_exit_writev(struct syscall_exit *ctx)
{
	request_call_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_sendmsg")
int request_exit_sendmsg(struct syscall_exit *ctx)
{
	request_call_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_sendfile64")
int request_exit_sendfile(struct syscall_exit *ctx)
{
	request_call_returned(ctx->ret);
	return 0;
}

/* ---- arrival ---- */

/* Data arrives at any socket, mostly in a soft interrupt; since 6.3 (40e0b0908142). */
SEC("?tp_btf/sk_data_ready")
int BPF_PROG(request_data_ready, const struct sock *sk)
{
	if (!request_out && request_concerns(sk))
		request_data_arrived(sk);
	return 0;
}

/* Before 6.3: every TCP segment in ESTABLISHED, before it is queued. */
SEC("?tp_btf/tcp_probe")
int BPF_PROG(request_tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	unsigned char flags[2] = {};
	unsigned char *header;

	if (request_out || !request_port_seen(BPF_CORE_READ(sk, __sk_common.skc_num)))
		return 0;
	header = BPF_CORE_READ(skb, data);
	/* bytes 12 and 13 of the TCP header; a bare ACK carries no data */
	bpf_probe_read_kernel(flags, sizeof(flags), header + 12);
	if (BPF_CORE_READ(skb, len) > (flags[0] >> 4) * 4)
		request_data_arrived(sk);
	return 0;
}

/* ---- the life of a connection ---- */

/*
 * Only sockets of TCP are told of when they are freed. Of unix sockets and of MPTCP an entry may be
 * left over from an older connection at this address.
 */
static __always_inline void request_connection_forget(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (arrival)
		request_waits_no_more(arrival);
	bpf_map_delete_elem(&request_arrivals, &key);
	request_unix_gone(key);
	request_connection_delete(key);
}

/* accept() returned in a tracked process. Not in the programs, which need the stack. */
static __noinline int request_accepted(__u32 fd)
{
	struct sock *sk = fd_to_sock(fd);
	struct request_arrival *arrival, unseen = {};
	__u64 key = (__u64)sk;
	__u16 port;

	if (!sk || !request_listened(sk))
		return 0;
	port = request_server_port(sk);
	request_port_note(port);
	if (!port || BPF_CORE_READ(sk, sk_protocol) != REQUEST_PROTOCOL_TCP)
		request_connection_forget(key);
	if (!port) {
		if (BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
			return 0;
		request_unix = 1;
		unseen.copied_seq = request_inode(key);
	}
	if (port && !request_has_lengths)
		unseen.copied_seq = BPF_CORE_READ((struct tcp_sock *)sk, copied_seq);
	arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	unseen.accepted_ns = bpf_ktime_get_ns();
	unseen.accepted_tid = current_tid();
	unseen.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	unseen.port = port;
	if (arrival && !arrival->accepted_ns) { /* otherwise left over from an older connection */
		arrival->accepted_ns = unseen.accepted_ns;
		arrival->accepted_tid = unseen.accepted_tid;
		return 0;
	}
	if (arrival)
		request_waits_no_more(arrival);
	if (request_readable(key))
		unseen.first_byte_ns = REQUEST_ARRIVED_UNSEEN;
	bpf_map_update_elem(&request_arrivals, &key, &unseen, BPF_ANY);
	return 0;
}

static __always_inline void request_accept_returned(long ret)
{
	if (ret >= 0 && !request_is_over() && process_tracked(current_tgid()))
		request_accepted(ret);
}

SEC("?tracepoint/syscalls/sys_exit_accept")
int request_exit_accept(struct syscall_exit *ctx)
{
	request_accept_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_accept4")
int request_exit_accept4(struct syscall_exit *ctx)
{
	request_accept_returned(ctx->ret);
	return 0;
}

/* The fallback without tracefs: costs every system call of the host 80 ns. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(request_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_accept4 || nr == NR_accept)
		request_accept_returned(ret);
	else if (!request_has_lengths && (request_call_writes(nr)))
		request_call_returned(ret);
	return 0;
}

/*
 * A TCP socket changes state: in a thread's context or in a soft interrupt. A reset by the client
 * is not the end of a request, since the handler goes on until the server closes the socket.
 */
SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(request_tcp_state, const struct sock *sk, int old_state, int state)
{
	__u64 key = request_key(sk);
	struct request_connection *conn;

	if (request_is_over())
		return 0;
	/* connections may wait long before a starting service accepts the first one */
	if (state == REQUEST_TCP_LISTEN && process_tracked(current_tgid()))
		request_port_note(request_local_port(sk));
	if (!request_port_seen(state == REQUEST_TCP_CLOSE ? request_source_port(sk)
							  : request_local_port(sk)))
		return 0;
	if (old_state == REQUEST_TCP_SYN_RECV && state == REQUEST_TCP_ESTABLISHED) {
		request_established((struct sock *)sk);
		return 0;
	}
	if (state != REQUEST_TCP_FIN_WAIT1 && state != REQUEST_TCP_LAST_ACK &&
	    state != REQUEST_TCP_CLOSE)
		return 0;
	conn = bpf_map_lookup_elem(&request_connections, &key);
	if (!conn)
		return 0;
	if (state != REQUEST_TCP_CLOSE) {
		conn->shut = 1;
		request_closed(key);
	} else if (BPF_CORE_READ_BITFIELD_PROBED(sk, sk_shutdown) == REQUEST_SHUTDOWN_BOTH) {
		request_closed(key);
	} else if (!request_shut(sk)) {
		conn->gone = GONE_WRITE;
	}
	return 0;
}

/*
 * The socket of a server is freed: did it have bytes that nobody has read, and that are not the
 * rest of a request? A worker that ends, or that has enough connections, closes without a read.
 */
static __always_inline bool request_closed_unread(__u64 key, const struct request_arrival *arrival)
{
	const struct tcp_sock *tcp = (const struct tcp_sock *)key;
	const struct request_connection *conn;

	if (!arrival->first_byte_ns || arrival->open || arrival->foreign || arrival->older ||
	    arrival->odd != ODD_NOT)
		return false;
	/* in the accept queue nothing can be read, and tcp_disconnect() says that all was; a FIN
	 * counts like a byte */
	if (!(arrival->established_ns && !arrival->accepted_ns) &&
	    BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq) <= 1)
		return false;
	conn = request_connection_of(key);
	return !conn || (conn->head_ended && !conn->body);
}

/* A TCP socket is freed: in a thread's context or in a soft interrupt. */
SEC("?tp_btf/tcp_destroy_sock")
int BPF_PROG(request_tcp_destroy, struct sock *sk)
{
	__u16 port = request_source_port(sk);
	__u64 key = request_key(sk);
	struct request_arrival *arrival;

	if (!request_port_seen(port))
		return 0;
	if (!request_is_over())
		request_closed(key);
	arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	if (arrival) {
		request_waits_no_more(arrival);
		if (arrival->odd == ODD_PROXY && !arrival->foreign)
			__sync_fetch_and_add(&request_odd, 1);
		if (!request_is_over() && request_closed_unread(key, arrival))
			__sync_fetch_and_add(&request_unread, 1);
	}
	bpf_map_delete_elem(&request_arrivals, &key);
	request_connection_delete(key);
	return 0;
}

#endif
