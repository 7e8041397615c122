/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes that were written to a TCP socket and have not left. */
#ifndef UNDERSPAN_REQUEST_UNSENT_BPF_H
#define UNDERSPAN_REQUEST_UNSENT_BPF_H

#include "request/queue.bpf.h"

enum { REQUEST_TCP_NAGLE_OFF = 1 /* include/net/tcp.h */ };

/*
 * Has a written answer left? Less than a segment is held back by Nagle's algorithm until the client
 * acknowledges earlier bytes (up to 40 ms); more waits for the client's window or the network.
 */
static __always_inline __u16 request_unsent_by(const struct tcp_sock *tcp, __u32 unsent)
{
	if (unsent < BPF_CORE_READ(tcp, mss_cache) && BPF_CORE_READ(tcp, packets_out) &&
	    !(BPF_CORE_READ_BITFIELD_PROBED(tcp, nonagle) & REQUEST_TCP_NAGLE_OFF))
		return REQUEST_LACK_nagle;
	return REQUEST_LACK_unsent;
}

/* `sk` has a type known to the verifier: plain loads. */
static __always_inline __u16 request_unsent(struct sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!tcp || tcp->write_seq == tcp->snd_nxt)
		return 0;
	return request_unsent_by(tcp, tcp->write_seq - tcp->snd_nxt);
}

/* The same for a pointer without a type. */
static __always_inline __u16 request_unsent_untyped(__u64 key)
{
	struct tcp_sock *tcp = (struct tcp_sock *)key;
	__u32 unsent = BPF_CORE_READ(tcp, write_seq) - BPF_CORE_READ(tcp, snd_nxt);

	if (!unsent || BPF_CORE_READ((struct sock *)key, sk_protocol) != REQUEST_PROTOCOL_TCP)
		return 0;
	return request_unsent_by(tcp, unsent);
}

#endif
