/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is what a server reads the begin of a request? If not, what else: counted by protocol. */
#ifndef UNDERSPAN_REQUEST_RECOGNISE_BPF_H
#define UNDERSPAN_REQUEST_RECOGNISE_BPF_H

#include "request/head.bpf.h"

/*
 * Result for a read: enum request_start, the method, and the number of bytes before the method.
 */
#define REQUEST_BEGAN(start, method, skip) ((start) | (method) << 8 | (skip) << 16)

/* Beside: this CPU's scratch space is claimed, and has the head. */
enum { REQUEST_BEGAN_READ = 1U << 31 };

static __always_inline void request_began_end(__u32 began)
{
	struct request_scan *scan = request_scan_claimed();

	if (began & REQUEST_BEGAN_READ && scan)
		request_scan_end(scan);
}

/*
 * Most reads of a connection with earlier requests are the next request: the head is read once, for
 * the method and for the row. Returns REQUEST_BEGAN(), or START_NONE if that is not clear.
 */
static __always_inline __u32 request_recognise_next(__u64 base, __u32 n)
{
	struct request_scan *scan;
	__u32 method;

	if (n < REQUEST_START_BYTES)
		return START_NONE;
	if (n > REQUEST_HEAD_BYTES)
		n = REQUEST_HEAD_BYTES;
	scan = request_scan_begin();
	if (!scan)
		return START_NONE;
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n <= REQUEST_HEAD_BYTES && !bpf_probe_read_user(scan->head.bytes, n, (void *)base)) {
		method = request_method_of(scan->head.bytes);
		if (method)
			return REQUEST_BEGAN(START_REQUEST, method, 0) | REQUEST_BEGAN_READ;
	}
	request_scan_end(scan);
	return START_NONE;
}

/*
 * The bytes on a server's connection are not the begin of a request: counts the connection once, by
 * protocol.
 */
static __always_inline void request_not_begun(__u64 key, __u32 start)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (!arrival || arrival->foreign)
		return;
	if (start == START_TLS || start == START_HTTP2) {
		arrival->foreign = 1;
		__sync_fetch_and_add(start == START_TLS ? &request_tls : &request_http2, 1);
	} else if (start == START_BLANK) {
		arrival->odd = ODD_PROXY;
	} else if (arrival->odd == ODD_COUNTED || arrival->odd == ODD_UNSEEN) {
		return;
	} else if (start == START_UNSEEN) {
		arrival->odd = ODD_UNSEEN;
		__sync_fetch_and_add(&request_unseen, 1);
	} else if (!arrival->older) {
		arrival->odd = ODD_COUNTED;
		__sync_fetch_and_add(&request_odd, 1);
	}
}

/*
 * A connection from before the agent's start, in TLS or HTTP/2, or whose bytes are not seen: of a
 * server, or of a client of others? A connection shares the listener's port, while connect() takes
 * a port that no bind() may share.
 */
static __noinline int request_foreign_seen(__u64 key, __u32 start)
{
	struct inet_connection_sock *sk = (struct inet_connection_sock *)key;
	struct inet_bind_bucket *bucket;

	if (!request_local_port((struct sock *)key) ||
	    BPF_CORE_READ((struct sock *)key, sk_protocol) != REQUEST_PROTOCOL_TCP)
		return 0;
	bucket = BPF_CORE_READ(sk, icsk_bind_hash);
	if (!bucket || BPF_CORE_READ(bucket, fastreuse) < 0)
		return 0;
	request_port_note(request_local_port((struct sock *)key));
	request_connection_seen((struct sock *)key);
	request_not_begun(key, start);
	return 0;
}

/*
 * A read whose bytes are not in the memory of a call that is known (io_uring, recvmmsg()), on a
 * connection without an open request: the next request has no row. Global: for a separate stack.
 */
__noinline int request_read_unseen(__u64 key)
{
	if (bpf_map_lookup_elem(&request_arrivals, &key))
		request_not_begun(key, START_UNSEEN);
	else
		request_foreign_seen(key, START_UNSEEN);
	return 0;
}

/*
 * A read of `got` bytes at `base` on a connection without an incomplete head. `whole`: how many of
 * them are at `base`, 0 for the first read of a connection. Returns REQUEST_BEGAN(). Global: for a
 * separate stack.
 */
__noinline int request_recognise(__u64 key, __u64 base, __u32 got, __u32 whole)
{
	struct request_connection *conn;
	char b[REQUEST_START_BYTES] = {};
	__u32 n = got < sizeof(b) ? got : sizeof(b), skip, proxied, start, method;

	start = request_recognise_next(base, whole);
	if (start != START_NONE)
		return start;
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n > sizeof(b) || bpf_probe_read_user(b, n, (void *)base))
		return START_NONE;
	method = request_method_of(b);
	if (method || request_is_uwsgi(b, got))
		return REQUEST_BEGAN(START_REQUEST, method, 0);
	conn = request_connection_of(key);
	if (!conn && !bpf_map_lookup_elem(&request_arrivals, &key)) {
		/* perhaps a client's connection: take only bytes that are surely a request */
		start = request_foreign_of(b, got);
		if (start != START_NONE)
			request_foreign_seen(key, start);
		return request_has_lengths && request_method_may_follow(b, got) ? START_CUT
										: START_NONE;
	}
	proxied = conn ? 0 : request_proxy_head(base, got);
	if (proxied && proxied == got)
		request_not_begun(key, START_BLANK);
	skip = proxied;
	for (; !proxied && skip < 4 && skip < n && (b[skip & 3] == '\r' || b[skip & 3] == '\n');
	     skip++)
		;
	if (skip == got)
		return START_BLANK;
	start = request_start_of(key, base + skip, got - skip);
	if (skip)
		bpf_probe_read_user(b, sizeof(b), (void *)(base + skip));
	if (start == START_REQUEST)
		method = request_method_of(b) ?: REQUEST_METHOD_other;
	/* behind requests that were read together: perhaps the rest of the last one's head */
	if (method == REQUEST_METHOD_other && conn && conn->method == REQUEST_METHOD_none)
		start = START_NONE;
	if (start != START_REQUEST && start != START_CUT && !(conn && conn->worker)) {
		if (conn)
			conn->begin.at_ns = 0; /* an answer is not the last request's */
		if (start == START_NONE)
			start = request_foreign_of(b, got - skip);
		request_not_begun(key, start);
	}
	return REQUEST_BEGAN(start, method, skip);
}

#endif
