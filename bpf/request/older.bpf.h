/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests that were open when the agent started: their answers are written to connections from
 * which no request was read since. They have no row, since nobody has seen their begin.
 */
#ifndef UNDERSPAN_REQUEST_OLDER_BPF_H
#define UNDERSPAN_REQUEST_OLDER_BPF_H

#include "request/connection.bpf.h"
#include "request/http.bpf.h"

__u64 request_older; /* requests that were open at the agent's start */

/* Do the `n` bytes begin with the size of a chunk, in a line of its own? */
static __always_inline bool request_begins_chunk(const char b[16], __u32 n)
{
	bool digits = true;

	for (__u32 i = 0; i < 10; i++) {
		__u8 digit = b[i] - '0', letter = (b[i] | 0x20) - 'a';

		if (digits && (digit < 10 || letter < 6))
			continue;
		return digits && i && i + 1 < n && b[i] == '\r' && b[i + 1] == '\n';
	}
	return false;
}

/*
 * The connection from before the agent's start has an answer, perhaps an interim one. Counted once,
 * and not again until its end. False: younger, or counted before, or no room to remember it.
 */
static __always_inline bool request_older_is_new(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key), new = {};

	if (arrival) {
		if (arrival->established_ns || arrival->accepted_ns || arrival->foreign ||
		    arrival->older || arrival->odd == ODD_UNSEEN)
			return false;
		arrival->older = 1;
		if (arrival->odd == ODD_COUNTED) /* the rest of the request's body was read */
			__sync_fetch_and_add(&request_odd, -1);
		return true;
	}
	new.port = request_local_port((struct sock *)key);
	new.netns = BPF_CORE_READ((struct sock *)key, __sk_common.skc_net.net, ns.inum);
	if (new.port && !request_has_lengths)
		new.copied_seq = BPF_CORE_READ((struct tcp_sock *)key, copied_seq);
	new.older = 1;
	return !bpf_map_update_elem(&request_arrivals, &key, &new, BPF_NOEXIST);
}

/*
 * A write of `ret` bytes to a socket without a known request: of a server's answer? A head is
 * nobody else's; chunks are written by clients, too, but not from a server's port. Global: see
 * request_scan_line().
 */
__noinline int request_wrote_unread(__u64 key, int ret)
{
	enum { LAST_CHUNK_BYTES = 5 };
	struct request_buffer buffer = {};
	char b[16] = {};
	__u32 n = ret, status;
	__u16 port;

	if (ret < LAST_CHUNK_BYTES || !process_tracked(current_tgid()) ||
	    !request_call_buffer(&buffer))
		return 0;
	if (n > buffer.len)
		n = buffer.len;
	if (n > REQUEST_STATUS_BYTES)
		n = REQUEST_STATUS_BYTES;
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n > sizeof(b) || bpf_probe_read_user(b, n, (void *)buffer.base))
		return 0;
	status = request_status_of(b, n);
	port = request_local_port((struct sock *)key);
	if (status == STATUS_NONE &&
	    (!port || !request_port_seen(port) || !request_begins_chunk(b, n)))
		return 0;
	if (status == STATUS_CUT || !request_older_is_new(key))
		return 0;
	request_port_note(port);
	__sync_fetch_and_add(&request_older, 1);
	return 0;
}

/*
 * May the current thread write an answer to this socket, although no request was read from its port
 * since the agent's start? Not to one of connect(): see request_foreign_seen(). `sk` has a type
 * known to the verifier.
 */
static __always_inline bool request_may_be_older(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;
	struct inet_bind_bucket *bucket;

	if (!process_may_be_known(current_tgid()))
		return false;
	if (family == AF_UNIX)
		return request_unix_wanted;
	if ((family != AF_INET && family != AF_INET6) || request_ports_only ||
	    sk->sk_protocol != REQUEST_PROTOCOL_TCP)
		return false;
	bucket = BPF_CORE_READ((const struct inet_connection_sock *)sk, icsk_bind_hash);
	return bucket && BPF_CORE_READ(bucket, fastreuse) >= 0;
}

#endif
