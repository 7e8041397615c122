/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State transitions of a connection: the effect of each touch. */
#ifndef UNDERSPAN_HANDOFF_TOUCH_BPF_H
#define UNDERSPAN_HANDOFF_TOUCH_BPF_H

#include "handoff/connection.bpf.h"
#include "handoff/report.bpf.h"
#include "lib/compat.bpf.h"
#include "lib/identity.bpf.h"

struct touch {
	__u32 pickup;
	bool reads, writes, polls_on, polls_off;
	bool finds_end; /* the call has read the end of the stream */
	__u32 consumed; /* bytes already read, for touches seen at the end of a read */
};

/*
 * A kept-alive connection is also picked up when the client leaves. The unread data is then only
 * the end of the stream, or on TLS (which OpenSSL reads with read()) a close_notify alert: at most
 * 31 bytes with any cipher, too short for a request. No request waited.
 */
static __always_inline bool only_end_of_stream(struct handoff_connection *conn, __u64 sock_address,
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
	/* minus the FIN */
	unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq) - 1 + touch->consumed;
	return unread == 0 || (touch->pickup == HANDOFF_PICKUP_read && unread <= TLS_ALERT_MAX);
}

static __always_inline void pick_up(__u64 sock, struct handoff_connection *conn,
				    const struct touch *touch, __u64 now)
{
	struct event_header *header = &conn->event.header;
	__u64 start = header->start_ns, waited = 0;
	__u8 one = 1;

	if (conn->event.queue == HANDOFF_QUEUE_KEEPALIVE && only_end_of_stream(conn, sock, touch)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		conn->state = SERVED;
		return;
	}
	header_set_known(header, now);
	header->start_ns = start;
	header->end_ns = now;
	conn->event.pickup = touch->pickup;
	conn->stack = 0;
	conn->stack_missed = 0;
	if (conn->first_byte_ns) {
		waited = now - (conn->first_byte_ns > start ? conn->first_byte_ns : start);
	} else if (touch->consumed || touch->finds_end || readable(sock)) {
		/* arrival not seen, e.g. the accepting thread read a part of the bytes */
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
		keep_stack(conn);
	conn->state = PICKED;
	if (bpf_map_update_elem(&handoff_picked, &sock, &one, BPF_ANY))
		count_lost();
}

/* An idle connection has a new request, which waits since its first byte. */
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
		/* the accepting thread consumed these bytes: the worker waits for the next ones */
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
			conn->state = SERVED; /* done by the poller itself */
		else if (touch->reads)
			/* a poller without epoll_ctl woke the present thread */
			wait_again(conn, now);
	}
	if (conn->state != WAITING)
		return;
	if (conn->main_read_ns && touch->writes) {
		/* read by the accepting thread, answered by a worker: no hand-off */
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		connection_delete(sock, conn);
		return;
	}
	pick_up(sock, conn, touch, now);
}

static __always_inline void unserved_touched(__u64 sock, struct handoff_connection *conn,
					     const struct touch *touch)
{
	__u64 now = bpf_ktime_get_ns();

	/* the kernel may not report data on a unix socket; an answer implies a request */
	if (conn->state == PICKED &&
	    (conn->first_byte_ns || (conn->event.family == AF_UNIX && touch->writes)))
		report_picked(sock, conn, now);
	if (current_tid() == conn->event.main_host_tid)
		touch_by_main(conn, touch, now);
	else
		touch_by_other(sock, conn, touch, now);
}

/*
 * Not inlined: programs for many calls end here. The socket leads to the connection: the call reads
 * the same memory next, so the price is one look-up.
 */
static __noinline int fd_of_known_process_touched(__u32 fd, struct touch *touch)
{
	__u64 sock = fd_to_sock_name(fd);
	struct handoff_connection *conn = bpf_map_lookup_elem(&handoff_conns, &sock);

	/* a descriptor with the number that accept() returned, in the same process */
	if (!touch || !conn || conn->event.fd != fd || conn->host_pid != current_tgid() ||
	    !is_same(conn, sock))
		return 0;
	if (conn->state != SERVED)
		unserved_touched(sock, conn, touch);
	if (conn->state == SERVED && touch->reads)
		conn->first_byte_ns =
			0; /* bytes that arrive after the read may be the next request */
	/* a served connection becomes idle when a thread adds the fd to a poller */
	if (conn->state == SERVED && touch->polls_on) {
		conn->idle_tid = current_tid();
		if (!readable(sock))
			conn->first_byte_ns = 0;
		else if (!conn->first_byte_ns)
			conn->first_byte_ns = bpf_ktime_get_ns();
		conn->state = IDLE;
	}
	return 0;
}

/* A system call on a descriptor begins. */
static __always_inline void fd_touched(__u32 fd, struct touch *touch)
{
	if (process_may_be_known(current_tgid()))
		fd_of_known_process_touched(fd, touch);
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
 * A read of the socket ends, in any system call and with any descriptor. Covers reads that the
 * entry tracepoints do not show: read() of TLS, recvmsg(), dup()ed and passed descriptors, child
 * processes. `ret`: result of the read.
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
	else if (call.nr != NR_recvfrom) /* recvfrom() was seen at its entry */
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

/* No descriptor refers to the socket any more, and its address may be reused. */
static __always_inline void tcp_gone(__u64 sock)
{
	struct handoff_connection *conn = tcp_ended(sock);

	if (conn)
		connection_delete(sock, conn);
}

#endif
