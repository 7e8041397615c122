/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A connection that waited for a worker thread: bpf/handoff.bpf.c -> src/trackers/handoff.c. */
#ifndef UNDERSPAN_EVENTS_HANDOFF_H
#define UNDERSPAN_EVENTS_HANDOFF_H

#include "events/event.h"
#include "python_stack.h"

/* ebpf_handoff.queue; append only */
enum handoff_queue { HANDOFF_QUEUE_ACCEPT, HANDOFF_QUEUE_KEEPALIVE, HANDOFF_QUEUE_MAX };

/* ebpf_handoff.pickup: the system call of the worker's first touch */
/* clang-format off */
#define HANDOFF_PICKUPS(X)                                                                         \
	X(recvfrom) X(recvmsg) X(recvmmsg) X(read) X(readv) X(poll) X(ppoll) X(epoll_ctl)          \
	X(ioctl) X(fcntl) X(setsockopt) X(getsockopt) X(getsockname) X(getpeername) X(write)       \
	X(writev) X(sendto) X(sendmsg) X(sendmmsg) X(sendfile) X(shutdown)
/* clang-format on */

enum handoff_pickup {
#define X(name) HANDOFF_PICKUP_##name,
	HANDOFF_PICKUPS(X)
#undef X
		HANDOFF_PICKUP_MAX,
};

/* The header's thread is the worker; start = accept or (keepalive) first byte, end = pickup. */
struct handoff_event {
	struct event_header header;
	__u64 client_wait_ns; /* from the start to the arrival of the request's first byte */
	__u64 handoff_ns;     /* from the first byte to the pickup */
	__u64 main_ident;     /* of the accepting thread, see struct event_header */
	__u32 fd;
	__u32 main_tid; /* the accepting thread, in its PID namespace */
	__u32 main_host_tid;
	__u16 local_port; /* host byte order; 0 for unix sockets */
	__u16 peer_port;
	__u8 peer_ip[16]; /* IPv6, IPv4 as ::ffff:a.b.c.d, :: for unix sockets */
	char main_comm[EVENT_COMM_LEN];
	__u8 queue;  /* enum handoff_queue */
	__u8 pickup; /* enum handoff_pickup */
	__u8 family; /* AF_INET, AF_INET6, AF_UNIX */
	__u8 pad;
	struct python_stack_info py_stack; /* frames follow: the worker's stack at the pickup */
};

enum connection_state {
	WAITING, /* for a thread: accepted, or a request arrived on an idle connection */
	PICKED,	 /* a thread took the connection, the first byte has not arrived */
	SERVED,	 /* reported; the worker's further calls do not matter */
	IDLE,	 /* kept alive: some poller waits for the next request */
};

/*
 * The state of a followed connection, see bpf/handoff/connection.bpf.h; user space deletes stale
 * entries.
 */
struct handoff_connection {
	struct handoff_event event; /* filled step by step */
	__u64 inode;		    /* inode number of the socket: not reused soon */
	__u64 first_byte_ns;	    /* 0: not arrived */
	__u64 main_read_ns;	    /* last read by the accepting thread; 0: none */
	__u32 host_pid;		    /* the accepting process */
	__u32 idle_tid;		    /* the thread that added the connection to a poller */
	__u32 state;		    /* enum connection_state */
	__u32 stack_missed;	    /* enum event_stat: why the worker's stack could not be taken */
	__u64 stack; /* key of the stack kept until the first byte arrives; 0: none */
};

#endif
