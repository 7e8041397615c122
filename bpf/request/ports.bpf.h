/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The local ports of tracked servers. */
#ifndef UNDERSPAN_REQUEST_PORTS_BPF_H
#define UNDERSPAN_REQUEST_PORTS_BPF_H

#include "lib/compat.bpf.h"
#include "lib/socket.bpf.h"
#include "request/process.bpf.h"

/* Local ports of tracked servers, a bit each: a quick filter for all sockets. */
__u64 request_ports[1024];
__u64 request_unix; /* a tracked process serves a unix socket */

/* The word of `port`, with bounds that all verifiers see. */
static __always_inline __u64 *request_port_word(__u64 port)
{
	barrier_var(port);
	return &request_ports[port >> 6 & 1023];
}

static __always_inline bool request_port_seen(__u16 port)
{
	return *request_port_word(port) & 1ULL << (port & 63);
}

static __always_inline void request_port_note(__u16 port)
{
	/* not atomic: a bit lost to a race is set by the next request */
	if (!request_ports_only && port && !request_port_seen(port))
		*request_port_word(port) |= 1ULL << (port & 63);
}

static __always_inline __u16 request_local_port(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return family == AF_INET || family == AF_INET6 ? BPF_CORE_READ(sk, __sk_common.skc_num) : 0;
}

/* Of a socket whose number is released, as on the way to the state CLOSE, or after a reset. */
static __always_inline __u16 request_source_port(const struct sock *sk)
{
	return __builtin_bswap16(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
}

/* The listener's port, also after a reset by the client; 0: not of TCP. */
static __always_inline __u16 request_server_port(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return family == AF_INET || family == AF_INET6 ? request_source_port(sk) : 0;
}

/* May requests be read from this socket? */
static __always_inline bool request_listened(const struct sock *sk)
{
	__u16 family;

	if (!request_ports_only)
		return true;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return request_unix_wanted;
	return request_port_seen(request_source_port(sk));
}

#endif
