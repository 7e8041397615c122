/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A request served by an HTTP/1 server: bpf/request/ -> src/trackers/request.c. */
#ifndef UNDERSPAN_EVENTS_REQUEST_H
#define UNDERSPAN_EVENTS_REQUEST_H

#include "events/event.h"

/*
 * The parts of a request's time, columns <part>_ns. The first ones are kept per thread by the
 * scheduler path; the others concern the request as a whole.
 */
/* clang-format off */
#define REQUEST_THREAD_PARTS(X)                                                                    \
	X(runq) X(throttled) X(gil) X(gc_own) X(gc_sibling) X(lock) X(net) X(disk) X(fault)        \
	X(sleep) X(pipe) X(child) X(other) X(await) X(client_slow) X(client_wait)
#define REQUEST_WHOLE_PARTS(X)                                                                     \
	X(cpu) X(loop_busy) X(pool_wait) X(queue) X(accept_queue)
/* clang-format on */

enum request_part {
#define X(name) REQUEST_##name,
	REQUEST_THREAD_PARTS(X)
#undef X
		REQUEST_THREAD_PART_MAX,
	REQUEST_BEFORE_WHOLE = REQUEST_THREAD_PART_MAX - 1,
#define X(name) REQUEST_##name,
	REQUEST_WHOLE_PARTS(X)
#undef X
		REQUEST_PART_MAX,
};

/* ebpf_request.method; append only */
/* clang-format off */
#define REQUEST_METHODS(X)                                                                         \
	X(GET) X(HEAD) X(POST) X(PUT) X(DELETE) X(PATCH) X(OPTIONS) X(TRACE) X(CONNECT) X(other)
/* clang-format on */
enum request_method {
	REQUEST_METHOD_none,
#define X(name) REQUEST_METHOD_##name,
	REQUEST_METHODS(X)
#undef X
		REQUEST_METHOD_MAX,
};

enum request_model { REQUEST_MODEL_thread, REQUEST_MODEL_pool, REQUEST_MODEL_loop };
enum request_link { REQUEST_LINK_same, REQUEST_LINK_write, REQUEST_LINK_wake };
enum request_end {
	REQUEST_END_length,
	REQUEST_END_chunked,
	REQUEST_END_close,
	REQUEST_END_next_request,
	REQUEST_END_upgrade,
	REQUEST_END_exit, /* the process exited; with a number added: was ended by this signal */
	REQUEST_END_MAX = REQUEST_END_exit + 32,
};
enum request_outcome {
	REQUEST_OUTCOME_answered,
	REQUEST_OUTCOME_client_aborted,
	REQUEST_OUTCOME_no_answer,
	REQUEST_OUTCOME_upgraded,
};
enum request_family {
	REQUEST_FAMILY_unknown,
	REQUEST_FAMILY_ipv4,
	REQUEST_FAMILY_ipv6,
	REQUEST_FAMILY_unix,
};

/* Bits of `not_measured`; the names are in src/trackers/request.c. */
enum request_lack {
	REQUEST_LACK_gil = 1 << 0,
	REQUEST_LACK_gc = 1 << 1,
	REQUEST_LACK_arrival = 1 << 2,
	REQUEST_LACK_accept = 1 << 3,
	REQUEST_LACK_work_elsewhere = 1 << 4,
	REQUEST_LACK_head_split = 1 << 5,
	REQUEST_LACK_pipelined = 1 << 6,
	REQUEST_LACK_unsent = 1 << 7,
	REQUEST_LACK_nagle = 1 << 8,
};
enum { REQUEST_LACKS = 9 };

/*
 * The first byte of net_peer_ip for a unix socket's service, of which the last eight bytes are a
 * key of the map request_unix_names, and the port is 0. (ff00::/8 is multicast, with a port.)
 */
enum { REQUEST_UNIX_PEER = 0xff };

/* Value of request_unix_names: what the service gave to bind(), with a leading NUL if abstract. */
struct request_unix_name {
	__u32 n; /* bytes */
	char bytes[108];
};

/* A request's head: its first bytes, and the last ones of a longer head read at once. */
enum { REQUEST_HEAD_BYTES = 1008, REQUEST_TAIL_BYTES = 256 };

/* The header's thread is the one that ran the handler; start and end as in ebpf_request. */
struct request_event {
	struct event_header header;
	__u64 parts[REQUEST_PART_MAX]; /* ns, by enum request_part */
	__u64 request_id;
	__u64 bytes_in, bytes_out;
	__u64 net_peer_ns;
	__u64 body_wait_ns;   /* of `await`: no bytes were there of the body's rest */
	__u8 peer_ip[16];     /* IPv6, IPv4 as ::ffff:a.b.c.d, :: for unix sockets */
	__u8 net_peer_ip[16]; /* the peer that took most of the net part, or REQUEST_UNIX_PEER */
	__u32 fd;
	__u32 netns;
	__u32 connection_request; /* 1: the first of its connection; 0: unknown */
	__u32 queue_depth;
	__u32 busy_threads; /* with has_busy_threads */
	__u32 open_requests;
	__u32 weight; /* number of requests that the row stands for */
	__u16 server_port, peer_port, net_peer_port;
	__u16 status;	    /* 0: no answer */
	__u16 not_measured; /* bits of enum request_lack */
	__u16 head_n;	    /* bytes of the head behind the event */
	__u16 tail_n;	    /* of these, the head's last bytes: something is missing before them */
	__u8 family;	    /* enum request_family */
	__u8 method;	    /* enum request_method */
	__u8 model;	    /* enum request_model */
	__u8 link;	    /* enum request_link */
	__u8 end_by;	    /* enum request_end */
	__u8 outcome;	    /* enum request_outcome */
	__u8 has_queue_depth;
	__u8 has_busy_threads;
	__u8 pad[6];
};

/* 0: no answer; 1..5. A status of no class is a failure of the server (RFC 9110, 15). */
static inline __u8 request_class_of(__u16 status)
{
	return status < 600 ? status / 100 : 5;
}

enum { REQUEST_BUCKETS = 32 };

/* Sums of a process over an interval. */
struct request_profile_key {
	__u32 host_pid;
	__u16 server_port;
	__u8 method;	   /* enum request_method */
	__u8 status_class; /* see request_class_of() */
	__u8 model;	   /* enum request_model */
	__u8 pad[3];
};

struct request_profile {
	struct event_header header; /* of the first request's process */
	__u64 count, duration_ns, min_ns, max_ns;
	__u64 parts[REQUEST_PART_MAX];
	__u64 buckets[REQUEST_BUCKETS]; /* by duration, see ebpf_request_profile.sql */
	__u64 not_measured;		/* bits of all requests */
	__u64 lacks[REQUEST_LACKS];	/* requests with each bit */
};

#endif
