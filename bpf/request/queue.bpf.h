/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Arrivals on connections of servers, keyed by socket; and for each listener the number of requests
 * that have arrived and are not read.
 */
#ifndef UNDERSPAN_REQUEST_QUEUE_BPF_H
#define UNDERSPAN_REQUEST_QUEUE_BPF_H

#include "request/process.bpf.h"

/* request_arrival.first_byte_ns: the bytes were there before the agent looked. */
enum { REQUEST_ARRIVED_UNSEEN = 1 };

/* include/net/tcp_states.h */
enum { REQUEST_TCP_ESTABLISHED = 1, REQUEST_TCP_CLOSE = 7, REQUEST_PROTOCOL_TCP = 6 };

/* Has a connection without a request so far been counted in request_odd? */
enum request_oddness {
	ODD_NOT,
	ODD_COUNTED,
	ODD_PROXY,  /* at its end: only a head of the PROXY protocol was read */
	ODD_UNSEEN, /* counted in request_unseen instead */
};

/* Small, because idle connections have an entry as well. */
struct request_arrival {
	__u64 established_ns; /* 0: not seen */
	__u64 accepted_ns;    /* 0: not seen */
	__u64 first_byte_ns;  /* of the next request; 0: not arrived */
	__u32 accepted_tid;
	/* before 6.3: tcp_sock.copied_seq after the last read; of a unix socket: of its inode */
	__u32 copied_seq;
	__u32 netns;
	__u32 depth;  /* of a waiting request: number of waiting requests at the arrival */
	__u16 port;   /* of the listener; 0: unknown, or a unix socket's */
	__u8 waits;   /* counted in request_listener.waiting */
	__u8 open;    /* a request is read and not answered: further bytes belong to the request */
	__u8 foreign; /* TLS or HTTP/2: reads are never requests */
	__u8 odd;     /* enum request_oddness */
	__u8 older;   /* from before the agent's start, and counted: see older.bpf.h */
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_arrival);
} request_arrivals SEC(".maps");

struct request_listener_key {
	__u32 netns;
	__u32 port;
};

struct request_listener {
	__u64 since_ns;
	__u64 unsure_ns; /* `waiting` may have been too low until this time */
	__s64 waiting;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct request_listener_key);
	__type(value, struct request_listener);
} request_listeners SEC(".maps");

static __always_inline struct request_listener *
request_listener_find(const struct request_arrival *arrival)
{
	struct request_listener_key key = { arrival->netns, arrival->port };

	return bpf_map_lookup_elem(&request_listeners, &key);
}

/* The first byte after a request's end has arrived; in a soft interrupt. */
static __always_inline void request_waits(struct request_arrival *arrival, __u64 now)
{
	struct request_listener_key key = { arrival->netns, arrival->port };
	struct request_listener *listener = bpf_map_lookup_elem(&request_listeners, &key), new = {};

	if (!listener) {
		new.since_ns = new.unsure_ns = now;
		bpf_map_update_elem(&request_listeners, &key, &new, BPF_NOEXIST);
		listener = bpf_map_lookup_elem(&request_listeners, &key);
		if (!listener)
			return;
	}
	arrival->depth = listener->waiting > 0 ? listener->waiting : 0;
	arrival->waits = 1;
	__sync_fetch_and_add(&listener->waiting, 1);
}

/* Read, or gone. */
static __always_inline void request_waits_no_more(struct request_arrival *arrival)
{
	struct request_listener *listener;

	if (!arrival->waits)
		return;
	arrival->waits = 0;
	listener = request_listener_find(arrival);
	/* an entry created after an eviction does not count this request */
	if (listener && listener->since_ns <= arrival->first_byte_ns)
		__sync_fetch_and_add(&listener->waiting, -1);
}

/* An uncounted arrival was read: earlier figures may be too low. */
static __always_inline void request_listener_unsure(__u32 netns, __u16 port)
{
	struct request_listener_key key = { netns, port };
	struct request_listener *listener = bpf_map_lookup_elem(&request_listeners, &key);

	if (listener)
		listener->unsure_ns = bpf_ktime_get_ns();
}

/*
 * The request was read: the number of waiting requests at its arrival. False: unknown. The same as
 * request_waits_no_more(), with one look-up.
 */
static __always_inline bool request_depth_known(struct request_arrival *arrival, __u32 *ret_depth)
{
	struct request_listener *listener;

	if (!arrival->waits)
		return false;
	arrival->waits = 0;
	*ret_depth = arrival->depth;
	listener = request_listener_find(arrival);
	if (!listener)
		return false;
	if (listener->since_ns <= arrival->first_byte_ns)
		__sync_fetch_and_add(&listener->waiting, -1);
	return arrival->first_byte_ns > listener->unsure_ns;
}

#endif
