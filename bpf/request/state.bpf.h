/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The request tracker's part of struct thread: sums of a thread's time by part. */
#ifndef UNDERSPAN_REQUEST_STATE_BPF_H
#define UNDERSPAN_REQUEST_STATE_BPF_H

#include "vmlinux.h"
#include "events/request.h"

enum {
	REQUEST_PEERS = 8, /* a power of two */
	REQUEST_IDLE_SNAPSHOTS = 2,
	REQUEST_LEVELS = 16,
	REQUEST_WATCHED = 4,
};

/* How a thread serves requests, as far as they show it. */
enum request_serves {
	/* one at a time: all of its requests so far were REQUEST_MODEL_thread */
	REQUEST_SERVES_ONE = 1,
	/* perhaps: some were not, or it accepts connections and sleeps in epoll_wait() */
	REQUEST_SERVES_SEVERAL,
};

enum request_given { REQUEST_GIVEN = 1, REQUEST_GIVEN_BEGUN };
enum request_ended {
	REQUEST_ENDED_AWAKE = 1, /* the thread has not slept since */
	REQUEST_ENDED_WRITES,	 /* neither, and the write that woke the loop goes on */
};

/* Sums of a running thread at a time; a request is the difference of two snapshots. */
struct request_snapshot {
	__u64 at_ns;   /* 0: none */
	__u64 busy_ns; /* several requests open, the thread not idle */
	__u64 parts[REQUEST_THREAD_PART_MAX];
};

/* The remote end of a socket; not known: none, or of no interest. */
struct request_remote {
	__u8 ip[16];
	__u16 port;
	__u8 known;
	__u8 pad[5];
};

struct request_peer {
	__u8 ip[16];
	__u64 ns;
	__u64 others_ns; /* of peers that had the entry before; `ns` has it, too */
	__u16 port;
	__u16 pad[3];
};

/* A unix socket with an open request: see close.bpf.h. */
struct request_watched {
	__u64 sk;     /* struct sock *; 0: none */
	__u64 socket; /* sock.sk_socket as long as the socket is open */
};

struct request_sums {
	__u64 parts[REQUEST_THREAD_PART_MAX]; /* since the agent saw the thread first */
	/* The share of `parts` in which several requests were open, up to settled_ns. */
	__u64 shared[REQUEST_THREAD_PART_MAX];
	__u64 settled[REQUEST_THREAD_PART_MAX]; /* `parts` at settled_ns */
	__u64 settled_ns, busy_ns;
	__u64 gc_ended;	   /* gc_slot.ended when `parts` got the own collections last */
	__u64 gc_clock;	   /* the process's GC clock when a wait for the GIL began */
	__u64 gc_known;	   /* gc_slot.ended + 1 while gc_clock is right and none runs; 0: is not */
	__u64 throttled;   /* of the thread's cgroups, when the thread became runnable */
	__u64 polled_ns;   /* end of the last sleep in epoll_wait(), poll() or select() */
	__u64 epolled_ns;  /* of those, in epoll_wait() */
	__u64 woke_ns;	   /* the last sign that a pool may have work of this loop's requests */
	__u64 read_ns;	   /* this thread read a request last */
	__u64 closed_ns;   /* begin of a sleep that was added although the end was not seen */
	__u32 open;	   /* requests read by this thread and not answered */
	__u32 fd;	   /* of the last request's connection */
	__u32 idle_epoll;  /* 1 + the descriptor of the last epoll_wait() without an open request */
	__u32 switches;	   /* grows with each change of the sums */
	__u8 part;	   /* enum request_part of the present sleep */
	__u8 polls;	   /* the present sleep is in epoll_wait() or select() */
	__u8 works;	   /* of a pool: counted in request_process.pool_works */
	__u8 given;	   /* enum request_given: work that a loop handed to this thread */
	__u8 pooled;	   /* a loop has given this thread work, or created it */
	__u8 loops;	   /* has waited in epoll_wait() for bytes of its own connections */
	__u8 epolls;	   /* the present sleep is in epoll_wait() */
	__u8 selects_idle; /* has slept in select() or poll() without an open request */
	__u8 watches;	   /* entries of `watched` in use */
	__u8 gives;	   /* a loop that has handed work to a pool */
	__u8 reads_known;  /* `read_context` is known */
	__u8 tasks_answer; /* the loop has written an answer in a task's context */
	__u8 given_more;   /* the present work goes on with the request's work before */
	__u8 told;	   /* a loop that was not asleep: the work may have ended */
	__u8 given_own;	   /* no other thread can have taken the present work */
	__u8 ended;	   /* enum request_ended: of the last work */
	__u8 blocks;	   /* the only open request came from a socket that blocks: no loop's */
	__u8 idle_locks;   /* has slept on a lock between two requests, as a pool's thread does */
	/* of a loop, since the last moment without an open request */
	__u32 reads, gifts;
	__u32 settled_reads; /* the present hand-off is of no request up to this number */
	__u8 by_reader;	     /* woken from the present sleep by a thread with a request just read */
	__u8 serves;	     /* enum request_serves; 0: no request has ended */
	__u8 has_peers;	     /* `peers` is not empty */
	__u8 has_shared;     /* `shared` is not 0 */
	__u64 read_key;	     /* the connection of the last read */
	__u64 read_context, other_context, tstate; /* see context.bpf.h */
	__u64 unsure_ns;			   /* the last hand-off of an unknown request */
	__u64 spare_ns; /* the last hand-off while each request read was handed on */
	/* of a loop, and of its pool's threads: the socket that wakes the loop; 0: unknown, 1: none
	 */
	__u64 wake_sk;
	/* of a pool's thread */
	__u64 lock; /* address of the lock slept on */
	__u64 giver, given_lock, given_context;
	__u32 given_n;
	__u32 lacks; /* of the process, when this thread read a request: see request_lacks_of() */
	struct request_snapshot given_begin;
	__u64 several_ns; /* the last time that a further request was read while one was open */
	/* The last time with so many open requests: 2 to 8, then powers of two. */
	__u64 open_ns[REQUEST_LEVELS];
	__u32 open_n[REQUEST_LEVELS];
	struct request_remote remote; /* of the socket of the present sleep in `net` */
	/* of `net`, since the request was read, or since the begin of a pool's work */
	struct request_peer peers[REQUEST_PEERS];
	__u64 peer_at; /* of an entry that is looked for: see request_peer_at() */
	/* of a loop: the peer of the pool's work for the request that was linked last, its `nth` */
	struct request_peer linked_peer;
	__u64 linked_n;
	struct request_watched watched[REQUEST_WATCHED];
	struct event_header header; /* identity of the thread; start_ns: time of the reading */
	/* for threads that answer requests of a different reader */
	struct request_snapshot answered;		       /* end of the last answer */
	struct request_snapshot woken[REQUEST_IDLE_SNAPSHOTS]; /* first wake-ups since */
};

#endif
