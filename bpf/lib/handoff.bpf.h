/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connections that bpf/handoff.bpf.c follows, and what a touch means to each. A connection is
 * known by its socket, which stays the same under whatever descriptor and in whatever process it is
 * used; the descriptor of the accepting process is how the entry of a system call leads to it.
 */
#ifndef UNDERSPAN_HANDOFF_BPF_H
#define UNDERSPAN_HANDOFF_BPF_H

#include "underspan.bpf.h"
#include "compat.bpf.h"
#include "handoff_stack.bpf.h"
#include "socket.bpf.h"
#include "events/handoff.h"

enum connection_state {
	WAITING, /* for a thread: accepted, or a request arrived on an idle connection */
	PICKED,	 /* a thread has it, the first byte has not come yet */
	SERVED,	 /* reported; a worker does what it likes with it */
	IDLE,	 /* kept alive: some poller waits for the next request */
};

/* Without preallocation: most hosts have few connections, some have very many. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock *, only a name here */
	__type(value, struct handoff_connection);
} handoff_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* host pid << 32 | fd, of the accepting process */
	__type(value, __u64);
} handoff_fds SEC(".maps");

/* PICKED connections: who deletes the entry reports the row, so it is reported once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, __u8);
} handoff_picked SEC(".maps");

/* too big for the BPF stack */
static const struct handoff_connection empty_connection;

volatile __u64 min_duration_ns = 0; /* may change while it runs */

static __always_inline __u64 fd_key(__u32 tgid, __u32 fd)
{
	return (__u64)tgid << 32 | fd;
}

static __always_inline bool readable(__u64 sock)
{
	return BPF_CORE_READ((struct sock *)sock, sk_receive_queue.qlen) > 0;
}

static __always_inline __u64 socket_inode(__u64 sock)
{
	return BPF_CORE_READ((struct sock *)sock, sk_socket, file, f_inode, i_ino);
}

/*
 * The end of a TCP socket is seen (tcp_gone()). That of a unix socket is not: what has its address
 * now may be another one.
 */
static __always_inline bool is_same(const struct handoff_connection *conn, __u64 sock)
{
	return conn->event.family != AF_UNIX || socket_inode(sock) == conn->inode;
}

static __always_inline void read_addresses(struct handoff_event *event, struct sock *sock)
{
	event->family = BPF_CORE_READ(sock, __sk_common.skc_family);
	if (event->family == AF_INET) {
		ip_set_v4(event->peer_ip, BPF_CORE_READ(sock, __sk_common.skc_daddr));
	} else if (event->family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)event->peer_ip, sock,
				   __sk_common.skc_v6_daddr);
	} else {
		return;
	}
	event->local_port = BPF_CORE_READ(sock, __sk_common.skc_num);
	event->peer_port = __builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport));
}

static __always_inline void count_lost(void)
{
	stat_add(STAT_SEEN, 1);
	stat_add(STAT_LOST_STATE, 1);
}

/* The socket is gone, or nobody will hand it over. */
static __always_inline void forget(__u64 sock, struct handoff_connection *conn)
{
	__u64 key = fd_key(conn->host_pid, conn->event.fd);
	__u64 *named = bpf_map_lookup_elem(&handoff_fds, &key);

	if (named && *named == sock)
		bpf_map_delete_elem(&handoff_fds, &key);
	bpf_map_delete_elem(&handoff_picked, &sock);
	bpf_map_delete_elem(&handoff_conns, &sock);
}

/* A descriptor is used again. Its unix socket is gone; a TCP socket may live on in a child. */
static __always_inline void forget_former(__u64 key, __u64 sock)
{
	__u64 *named = bpf_map_lookup_elem(&handoff_fds, &key), former;
	struct handoff_connection *conn;

	if (!named)
		return;
	former = *named;
	conn = former == sock ? NULL : bpf_map_lookup_elem(&handoff_conns, &former);
	if (!conn || conn->event.family != AF_UNIX)
		return;
	if (conn->state == PICKED) /* who had taken it never read a byte of it */
		count_lost();
	bpf_map_delete_elem(&handoff_picked, &former);
	bpf_map_delete_elem(&handoff_conns, &former);
}

/* A connection came out of accept(): it waits from now on. */
static __always_inline void accepted(__u32 fd)
{
	__u64 key = fd_key(current_tgid(), fd), sock;
	struct handoff_connection *conn;
	struct event_header *header;

	sock = (__u64)fd_to_sock(fd);
	if (!sock)
		return;
	forget_former(key, sock);
	bpf_map_delete_elem(&handoff_picked, &sock);
	if (bpf_map_update_elem(&handoff_conns, &sock, &empty_connection, BPF_ANY) ||
	    bpf_map_update_elem(&handoff_fds, &key, &sock, BPF_ANY)) {
		bpf_map_delete_elem(&handoff_conns, &sock);
		count_lost();
		return;
	}
	conn = bpf_map_lookup_elem(&handoff_conns, &sock);
	if (!conn)
		return;
	header = &conn->event.header;
	header_set_current(header);
	conn->host_pid = header->host_pid;
	conn->event.main_tid = header->tid;
	conn->event.main_host_tid = header->host_tid;
	conn->event.main_ident = header->ident;
	__builtin_memcpy(conn->event.main_comm, header->comm, sizeof(header->comm));
	conn->event.fd = fd;
	conn->event.queue = HANDOFF_QUEUE_ACCEPT;
	read_addresses(&conn->event, (struct sock *)sock);
	conn->inode = socket_inode(sock);
	header->start_ns = bpf_ktime_get_ns();
	conn->state = WAITING;
	/* data_ready may have run since: it found no entry, but the queue tells */
	if (readable(sock))
		conn->first_byte_ns = header->start_ns;
}

static __always_inline bool long_enough(const struct handoff_connection *conn)
{
	return conn->event.header.end_ns - conn->event.header.start_ns >= min_duration_ns;
}

static __always_inline void fill_event(struct handoff_event *event,
				       const struct handoff_connection *conn)
{
	__u64 start = conn->event.header.start_ns, end = conn->event.header.end_ns;
	__u64 ready = conn->first_byte_ns > start ? conn->first_byte_ns : start;

	__builtin_memcpy(event, &conn->event, sizeof(*event));
	event->client_wait_ns = ready - start;
	event->handoff_ns = ready < end ? end - ready : 0;
}

enum row_stack {
	NO_STACK,
	STACK_NOW,  /* of the current thread, which has just picked it up */
	STACK_HELD, /* taken when it was picked up, before the first byte came */
};

/* False, and counted, when there is no stack: the row is still to be sent. */
static __always_inline bool report_with_stack(struct handoff_connection *conn, enum row_stack of)
{
	struct handoff_row *row = handoff_row_begin();
	__u32 why = STAT_STACK_ROOM;

	if (row) {
		why = of == STACK_NOW ? (__u32)handoff_take_stack(conn->event.header.tid)
				      : conn->stack_missed;
		if (!why) {
			fill_event(&row->event, conn);
			why = handoff_send_row(of == STACK_NOW ? 0 : conn->stack);
		}
		handoff_row_end(row);
	}
	if (why)
		stat_add(why, 1);
	return !why;
}

/* Both the thread and the first byte are there: this is the row. */
static __always_inline void report(struct handoff_connection *conn, enum row_stack of)
{
	struct handoff_event *event;

	stat_add(STAT_SEEN, 1);
	if (!long_enough(conn)) {
		stat_add(STAT_FILTERED, 1);
		return;
	}
	if (of != NO_STACK && report_with_stack(conn, of))
		return;
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	fill_event(event, conn);
	event_submit(event);
}

/* Takes the current thread's stack, for a row that is made later. */
static __always_inline void hold_stack(struct handoff_connection *conn)
{
	struct handoff_row *row = handoff_row_begin();
	__u32 why = STAT_STACK_ROOM;

	if (row) {
		why = handoff_take_stack(conn->event.header.tid);
		conn->stack = why ? 0 : handoff_keep_stack();
		if (!why && !conn->stack)
			why = STAT_STACK_ROOM;
		handoff_row_end(row);
	}
	conn->stack_missed = why;
}

/* What had been picked up without a byte: the byte came, or will never come. */
static __always_inline void report_picked(__u64 sock, struct handoff_connection *conn, __u64 now)
{
	if (bpf_map_delete_elem(&handoff_picked, &sock))
		return; /* somebody else does */
	if (!conn->first_byte_ns)
		conn->first_byte_ns = now;
	conn->state = SERVED;
	if (conn->stack || conn->stack_missed)
		report(conn, STACK_HELD);
	else
		report(conn, NO_STACK);
}

struct touch {
	__u32 pickup;
	bool reads, writes, polls_on, polls_off;
	bool finds_end; /* it has just read the end of the stream */
	__u32 consumed; /* what it has just read: a touch that is seen when it ends */
};

/*
 * A kept-alive connection is also picked up when its client is gone: there is nothing to read but
 * the end of the stream, or, on TLS (which OpenSSL reads with read()), a close_notify alert, which
 * no encryption makes longer than 31 bytes and no request fits into. Nobody waited for that.
 */
static __always_inline bool only_farewell(struct handoff_connection *conn, __u64 sock_address,
					  const struct touch *touch)
{
	enum { RCV_SHUTDOWN = 1, TLS_ALERT_MAX = 31 };
	struct tcp_sock *tcp = (struct tcp_sock *)sock_address;
	struct sock *sock = (struct sock *)sock_address;
	__u32 unread;

	if (!(BPF_CORE_READ_BITFIELD_PROBED(sock, sk_shutdown) & RCV_SHUTDOWN))
		return false;
	if (touch->finds_end)
		return true;
	if (conn->event.family == AF_UNIX)
		return !readable(sock_address) && !touch->consumed;
	/* less its FIN */
	unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq) - 1 + touch->consumed;
	return unread == 0 || (touch->pickup == HANDOFF_PICKUP_read && unread <= TLS_ALERT_MAX);
}

static __always_inline void pick_up(__u64 sock, struct handoff_connection *conn,
				    const struct touch *touch, __u64 now)
{
	struct event_header *header = &conn->event.header;
	__u64 start = header->start_ns, waited = 0;
	__u8 one = 1;

	if (conn->event.queue == HANDOFF_QUEUE_KEEPALIVE && only_farewell(conn, sock, touch)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		conn->state = SERVED;
		return;
	}
	header_set_current(header);
	header->start_ns = start;
	header->end_ns = now;
	conn->event.pickup = touch->pickup;
	conn->stack = 0;
	conn->stack_missed = 0;
	if (conn->first_byte_ns) {
		waited = now - (conn->first_byte_ns > start ? conn->first_byte_ns : start);
	} else if (touch->consumed || touch->finds_end || readable(sock)) {
		/* nobody saw the bytes come, be it that the accepting thread read a part of them */
		conn->first_byte_ns = conn->main_read_ns ? conn->main_read_ns : now;
		waited = now - start;
	}
	if (conn->first_byte_ns) {
		conn->state = SERVED;
		if (waited >= handoff_stack_min_ns)
			report(conn, STACK_NOW);
		else
			report(conn, NO_STACK);
		return;
	}
	if (waited >= handoff_stack_min_ns && long_enough(conn))
		hold_stack(conn);
	conn->state = PICKED;
	if (bpf_map_update_elem(&handoff_picked, &sock, &one, BPF_ANY))
		count_lost();
}

/* An idle connection has a request: it waits since that request's first byte. */
static __always_inline void wait_again(struct handoff_connection *conn, __u64 now)
{
	conn->event.header.start_ns = conn->first_byte_ns ? conn->first_byte_ns : now;
	conn->event.queue = HANDOFF_QUEUE_KEEPALIVE;
	conn->main_read_ns = 0;
	conn->state = WAITING;
}

static __always_inline void touch_by_main(struct handoff_connection *conn,
					  const struct touch *touch, __u64 now)
{
	if (conn->state == WAITING && touch->reads) {
		/* what it reads is not for the worker: the next byte counts */
		conn->main_read_ns = now;
		conn->first_byte_ns = 0;
	} else if (conn->state == IDLE && touch->polls_off) {
		wait_again(conn, now);
	}
}

static __always_inline void touch_by_other(__u64 sock, struct handoff_connection *conn,
					   const struct touch *touch, __u64 now)
{
	if (conn->state == IDLE) {
		if (current_tid() == conn->idle_tid || touch->polls_off)
			conn->state = SERVED; /* it was its own poller's doing */
		else if (touch->reads)
			/* a poller that needs no epoll_ctl, then this thread */
			wait_again(conn, now);
	}
	if (conn->state != WAITING)
		return;
	if (conn->main_read_ns && touch->writes) {
		/* the accepting thread read the request, a worker answers: nothing was handed over
		 */
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		forget(sock, conn);
		return;
	}
	pick_up(sock, conn, touch, now);
}

/* A system call on a descriptor begins. Not inlined: programs for many calls end here. */
static __noinline int touched(__u32 fd, struct touch *touch)
{
	__u64 key = fd_key(current_tgid(), fd), now;
	__u64 *named = bpf_map_lookup_elem(&handoff_fds, &key), sock;
	struct handoff_connection *conn;

	if (!named || !touch)
		return 0;
	sock = *named;
	conn = bpf_map_lookup_elem(&handoff_conns, &sock);
	/* closed, and used again for something else? Asked only where a row might come of it. */
	if (!conn || (conn->state != SERVED && (__u64)fd_to_sock(fd) != sock) ||
	    !is_same(conn, sock)) {
		bpf_map_delete_elem(&handoff_fds, &key);
		return 0;
	}
	now = bpf_ktime_get_ns();
	/* of a unix socket the kernel may not have said that bytes came; an answer says it, too */
	if (conn->state == PICKED &&
	    (conn->first_byte_ns || (conn->event.family == AF_UNIX && touch->writes)))
		report_picked(sock, conn, now);
	if (current_tid() == conn->event.main_host_tid)
		touch_by_main(conn, touch, now);
	else
		touch_by_other(sock, conn, touch, now);
	if (conn->state == SERVED && touch->reads)
		conn->first_byte_ns = 0; /* what comes after this read may be the next request */
	/* once served, whoever gives the fd to a poller makes it idle */
	if (conn->state == SERVED && touch->polls_on) {
		conn->idle_tid = current_tid();
		if (!readable(sock))
			conn->first_byte_ns = 0;
		else if (!conn->first_byte_ns)
			conn->first_byte_ns = now;
		conn->state = IDLE;
	}
	return 0;
}

static __always_inline __u32 pickup_of(long nr)
{
	return nr == NR_read	   ? HANDOFF_PICKUP_read
	       : nr == NR_readv	   ? HANDOFF_PICKUP_readv
	       : nr == NR_recvmsg  ? HANDOFF_PICKUP_recvmsg
	       : nr == NR_recvmmsg ? HANDOFF_PICKUP_recvmmsg
				   : HANDOFF_PICKUP_recvfrom;
}

/*
 * A read of the socket ends, whatever the call and the descriptor: it finds what the entries of
 * system calls do not show (read() of TLS, recvmsg(), dup()ed and passed descriptors, children).
 * `ret`: as of the call.
 */
static __always_inline void read_ended(__u64 sock, int ret)
{
	struct handoff_connection *conn = bpf_map_lookup_elem(&handoff_conns, &sock);
	struct touch touch = { .reads = true };
	struct user_call call;
	__u64 now;

	if (!conn)
		return;
	if (conn->state == SERVED) {
		if (!readable(sock))
			conn->first_byte_ns = 0;
		return;
	}
	if (!process_tracked(current_tgid()) || !is_same(conn, sock))
		return;
	now = bpf_ktime_get_ns();
	if (conn->state == PICKED) {
		if (ret >= 0)
			report_picked(sock, conn, now);
		return;
	}
	task_user_call(current_task(), &call);
	touch.pickup = pickup_of(call.nr);
	touch.consumed = ret > 0 ? ret : 0;
	touch.finds_end = ret == 0;
	if (current_tid() != conn->event.main_host_tid)
		touch_by_other(sock, conn, &touch, now);
	else if (call.nr != NR_recvfrom) /* whose entry was seen */
		touch_by_main(conn, &touch, now);
	if (conn->state == SERVED)
		conn->first_byte_ns = 0;
}

static __always_inline void data_arrived(__u64 sock)
{
	struct handoff_connection *conn = bpf_map_lookup_elem(&handoff_conns, &sock);
	__u64 now;

	if (!conn || conn->first_byte_ns || !is_same(conn, sock))
		return;
	now = bpf_ktime_get_ns();
	conn->first_byte_ns = now;
	if (conn->state == PICKED)
		report_picked(sock, conn, now);
}

/* A TCP connection was closed here, shut down or reset: no byte will come. */
static __always_inline struct handoff_connection *tcp_ended(__u64 sock)
{
	struct handoff_connection *conn = bpf_map_lookup_elem(&handoff_conns, &sock);

	if (conn && conn->state == PICKED)
		report_picked(sock, conn, bpf_ktime_get_ns());
	return conn;
}

/* No descriptor leads to it any more, and another one may have its address. */
static __always_inline void tcp_gone(__u64 sock)
{
	struct handoff_connection *conn = tcp_ended(sock);

	if (conn)
		forget(sock, conn);
}

#endif
