/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A connection that waited for a worker thread: bpf/handoff.bpf.c -> src/trackers/handoff.c. */
#ifndef UNDERSPAN_EVENTS_HANDOFF_H
#define UNDERSPAN_EVENTS_HANDOFF_H

#include "events/event.h"
#include "python_stack.h"

/* ebpf_handoff.queue; append only */
enum handoff_queue { HANDOFF_QUEUE_ACCEPT, HANDOFF_QUEUE_KEEPALIVE, HANDOFF_QUEUE_MAX };

/* ebpf_handoff.pickup: the system call with which the other thread first touched the fd */
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
	__u64 client_wait_ns; /* from start until the request's first byte was there */
	__u64 handoff_ns;     /* of start..end: bytes there, no thread */
	__u64 main_ident;     /* of the accepting thread, see struct event_header */
	__u32 fd;
	__u32 main_tid; /* the accepting thread, as its PID namespace counts */
	__u32 main_host_tid;
	__u16 local_port; /* host byte order; 0 for unix sockets */
	__u16 peer_port;
	__u8 peer_ip[16]; /* IPv6, IPv4 as ::ffff:a.b.c.d, :: for unix sockets */
	char main_comm[EVENT_COMM_LEN];
	__u8 queue;  /* enum handoff_queue */
	__u8 pickup; /* enum handoff_pickup */
	__u8 family; /* AF_INET, AF_INET6, AF_UNIX */
	__u8 pad;
	struct python_stack_info py_stack; /* its frames follow: the worker's at the pickup */
};

/* A connection as bpf/lib/handoff.bpf.h follows it; user space takes out what nobody else does. */
struct handoff_connection {
	struct handoff_event event; /* filled as things become known */
	__u64 inode;		    /* of the socket: a number that is not used again soon */
	__u64 first_byte_ns;	    /* 0: not there yet */
	__u64 main_read_ns;	    /* last read by the accepting thread; 0: it never read */
	__u32 host_pid;		    /* the process that accepted it */
	__u32 idle_tid;		    /* who gave it to a poller */
	__u32 state;
	__u32 stack_missed; /* enum event_stat: why the worker's stack could not be taken */
	__u64 stack;	    /* where it is kept until the first byte comes; 0: nowhere */
};

#endif
