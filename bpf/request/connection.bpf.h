/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of servers, keyed by socket: times of the handshake, of accept() and of the next
 * request's first byte; and the open request.
 */
#ifndef UNDERSPAN_REQUEST_CONNECTION_BPF_H
#define UNDERSPAN_REQUEST_CONNECTION_BPF_H

#include "lib/compat.bpf.h"
#include "lib/socket.bpf.h"
#include "request/heads.bpf.h"
#include "request/ports.bpf.h"
#include "request/queue.bpf.h"
#include "request/sums.bpf.h"

/* How far the answer is. */
enum request_answer {
	ANSWER_NONE,
	ANSWER_START,	 /* status line incomplete */
	ANSWER_INTERIM,	 /* head of an interim answer incomplete */
	ANSWER_HEAD,	 /* head incomplete */
	ANSWER_LENGTH,	 /* so many bytes follow */
	ANSWER_CHUNKED,	 /* ends with the last chunk */
	ANSWER_UNFRAMED, /* ends with the connection, or before the next request */
	ANSWER_ENDED,	 /* all bytes of Content-Length written */
	ANSWER_ENDED_CHUNKED,
};

/* Meaning of the next byte of a chunked body. */
enum request_chunk {
	CHUNK_SIZE,    /* the first digit of a size */
	CHUNK_DIGITS,  /* a further digit, or the end of the size */
	CHUNK_REST,    /* of the size's line */
	CHUNK_DATA,    /* `left` bytes, including the newline behind the data */
	CHUNK_TRAILER, /* first byte of a line behind the last chunk */
	CHUNK_LINE,    /* a further byte */
	CHUNK_ENDED,
	CHUNK_BAD, /* not valid, or too many chunks in a read or write */
};

struct request_chunks {
	__u64 left;
	__u32 state; /* enum request_chunk */
};

/* Meaning of reads outside of a head. */
enum request_body {
	BODY_NONE,
	BODY_LENGTH, /* so many bytes */
	BODY_CHUNKED,
	BODY_SKIPPED, /* more chunks in a read than are followed: see request_skipped_ends() */
	BODY_UNKNOWN, /* end unknown */
	BODY_FOREIGN, /* a different protocol, to the connection's end */
};

enum request_direction { DIRECTION_IN, DIRECTION_OUT };

enum request_gone { GONE_NOT, GONE_EOF /* a FIN was read */, GONE_WRITE /* a write failed */ };

struct request_connection {
	struct event_header header;    /* the handler's thread */
	struct request_snapshot begin; /* at the read, or where a pool's thread begins */
	struct request_snapshot last;  /* at the last write; at_ns 0: none */
	__u64 worker;	/* task_key() of the handler's thread; 0: no request is open */
	__u64 reader;	/* task_key() of the thread that counts the request as open; 0: none */
	__u64 inode;	/* of a unix socket, whose address may be reused */
	__u64 receiver; /* task_key() of the pool's thread that got the request; 0: unknown */
	__u64 start_ns, read_ns, ended_ns, linked_ns;
	__u64 fed_ns;	    /* the last read of the request's rest; 0: there was none */
	__u64 fed_await_ns; /* `await` of the reader at the last read */
	__u64 head_wait_ns; /* of that, between the first and the last read of the head */
	__u64 accept_queue_ns, client_wait_ns, queue_ns;
	__u64 bytes_in, bytes_out;
	__u64 body_wait_ns; /* see fed.bpf.h */
	/* of the bodies; without chunks, `left` is the rest of Content-Length */
	struct request_chunks chunks[2]; /* by enum request_direction */
	__u64 slow_since_ns, slow_ns;	 /* not all bytes of a write were taken */
	__u64 slow_await_ns; /* `await` of the handler's thread in slow_ns; its negative begin */
	__u64 wrote_ns;	     /* the last write, by any thread */
	__u64 closed_ns;     /* of a unix socket: closed with an open request */
	__u32 n;	     /* requests of the connection; 0: unknown */
	__u32 fd, netns;
	__u32 busy_threads, open_requests, queue_depth;
	__u32 nth; /* requests that the reader has read since its last idle moment */
	__u16 server_port, peer_port;
	__u16 status, not_measured;
	/* a write's rest: in the connection, since the verifier follows numbers on the stack */
	__u32 pieces;		   /* of a write of several, looked at */
	__u32 rest;		   /* bytes, of all pieces */
	__u64 rest_base, rest_len; /* of the first piece */
	__u8 peer_ip[16];
	__u8 family, method, model, link;
	__u8 answer;  /* enum request_answer */
	__u8 head;    /* enum request_head_state */
	__u8 gone;    /* enum request_gone */
	__u8 framing; /* enum request_framing: said by the part of the answer's head so far */
	__u8 counted; /* `n` is known */
	__u8 has_queue_depth;
	__u8 line_n; /* bytes in request_lines */
	__u8 body;   /* enum request_body */
	__u8 head_ended;
	__u8 answer_body;  /* bytes of a body with a Content-Length were written */
	__u8 head_in_slot; /* see heads.bpf.h */
	__u8 has_busy_threads;
	__u8 to_close; /* the answer's head has no length: the connection's end is the answer's */
	__u8 last_chunk_n[2]; /* of the bodies: see request_last_chunk() */
	__u8 shut;	      /* the server has shut down its direction, or closed */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_connection);
} request_connections SEC(".maps");

static const struct request_connection empty_request_connection;

/* Connections that cannot be followed, by cause. */
__u64 request_tls, request_http2, request_upgraded;
__u64 request_unreadable, request_pipelined, request_tunnels, request_odd, request_unbounded;
__u64 request_unseen, request_unread;

static __always_inline bool request_readable(__u64 sk)
{
	return BPF_CORE_READ((struct sock *)sk, sk_receive_queue.qlen) > 0;
}

static __always_inline __u64 request_inode(__u64 sk)
{
	return BPF_CORE_READ((struct sock *)sk, sk_socket, file, f_inode, i_ino);
}

/*
 * Is the socket in an epoll instance while a thread reads from it, or works for its request? A
 * loop's is. A thread that serves one connection at a time has taken the socket out, if it waited
 * so at all. Global: the verifier explores it once.
 */
__noinline int request_is_epolled(__u64 key)
{
	struct file *file = BPF_CORE_READ((struct sock *)key, sk_socket, file);

	return file && file_is_epolled(file);
}

static __always_inline void request_read_addresses(struct request_connection *conn, struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	conn->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (family == AF_UNIX) {
		conn->family = REQUEST_FAMILY_unix;
		conn->inode = request_inode((__u64)sk);
		return;
	}
	conn->server_port = request_source_port(sk);
	conn->peer_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (family == AF_INET) {
		conn->family = REQUEST_FAMILY_ipv4;
		ip_set_v4(conn->peer_ip, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	} else if (family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)conn->peer_ip, sk, __sk_common.skc_v6_daddr);
		conn->family = *(__u64 *)conn->peer_ip == 0 &&
					       *(__u32 *)(conn->peer_ip + 8) == 0xffff0000
				       ? REQUEST_FAMILY_ipv4
				       : REQUEST_FAMILY_ipv6;
	}
}

static __always_inline struct request_connection *request_connection_of(__u64 key)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);

	if (conn && conn->family == REQUEST_FAMILY_unix && request_inode(key) != conn->inode)
		return NULL;
	return conn;
}

/* A socket as a key: global functions take no typed pointers. */
static __always_inline __u64 request_key(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (has_typed_current()) {
		/* the difference of two pointers is a number: 30 ns less than a read */
		asm volatile("%0 -= %1" : "+r"(key) : "r"(bpf_get_current_task_btf()));
		return key + bpf_get_current_task();
	}
	bpf_probe_read_kernel(&key, sizeof(key), &sk);
	return key;
}

/* Deletes an entry left over from an older connection at this address, or of a freed socket. */
static __always_inline void request_connection_delete(__u64 key)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);

	if (!conn)
		return;
	if (conn->head_in_slot)
		request_head_free(key, true);
	bpf_map_delete_elem(&request_connections, &key);
}

/* The handshake is complete: the connection waits to be accepted. */
static __always_inline void request_established(struct sock *sk)
{
	struct request_arrival arrival = { .established_ns = bpf_ktime_get_ns() }, *old;
	__u64 key = request_key(sk);

	arrival.copied_seq = BPF_CORE_READ((struct tcp_sock *)sk, copied_seq);
	arrival.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	arrival.port = request_local_port(sk);
	/* left over from an older connection at this address, if the map was busy at its end */
	request_connection_delete(key);
	old = bpf_map_lookup_elem(&request_arrivals, &key);
	if (old)
		request_waits_no_more(old);
	bpf_map_update_elem(&request_arrivals, &key, &arrival, BPF_ANY);
}

/*
 * Excludes most sockets of untracked processes with three loads. After a reset, a socket has no
 * port. `sk` has a type known to the verifier.
 */
static __always_inline bool request_concerns(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family, port = sk->__sk_common.skc_num;

	if (family == AF_INET || family == AF_INET6)
		return !port || request_port_seen(port);
	return request_unix;
}

/* Data arrives on a connection from before the agent's start. */
static __always_inline void request_connection_seen(const struct sock *sk)
{
	struct request_arrival arrival = {};
	__u64 key = (__u64)sk;

	arrival.port = request_local_port(sk);
	if (!arrival.port || BPF_CORE_READ(sk, __sk_common.skc_state) != REQUEST_TCP_ESTABLISHED ||
	    BPF_CORE_READ(sk, sk_protocol) != REQUEST_PROTOCOL_TCP)
		return;
	arrival.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (!request_has_lengths)
		arrival.copied_seq = BPF_CORE_READ((struct tcp_sock *)sk, copied_seq);
	bpf_map_update_elem(&request_arrivals, &key, &arrival, BPF_NOEXIST);
}

/* A FIN is reported like data. `sk` has a type known to the verifier. */
static __always_inline bool request_only_end(const struct sock *sk)
{
	const struct tcp_sock *tcp = (const struct tcp_sock *)sk;

	if (sk->__sk_common.skc_state == REQUEST_TCP_ESTABLISHED)
		return false;
	return BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq) <= 1;
}

static __always_inline void request_data_arrived(const struct sock *sk)
{
	__u64 key = (__u64)sk, now;
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	struct request_connection *conn;

	if (!arrival) {
		request_connection_seen(sk);
		arrival = bpf_map_lookup_elem(&request_arrivals, &key);
		if (!arrival)
			return;
		conn = bpf_map_lookup_elem(&request_connections, &key);
		arrival->open = conn && conn->worker;
	}
	if (arrival->first_byte_ns || (arrival->port && request_only_end(sk)))
		return;
	now = bpf_ktime_get_ns();
	if (arrival->port && !arrival->open)
		request_waits(arrival, now);
	arrival->first_byte_ns = now;
}

#endif
