// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How long a connection waited for a worker thread: from accept() (or, on a kept-alive
 * connection, from the arrival of the next request) to the first touch of its fd by a thread
 * other than the one that accepted it. The three generations of gunicorn's gthread workers,
 * ThreadingHTTPServer and the like all follow the states below; a server that reads where it
 * accepts (sync workers, asyncio) never leaves WAITING and yields nothing.
 */
#include "underspan.bpf.h"
#include "socket.bpf.h"
#include "syscall.bpf.h"
#include "events/handoff.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define EPOLL_CTL_ADD 1
#define EPOLL_CTL_DEL 2
#define EPOLL_CTL_MOD 3
#define MSG_PEEK      2

enum connection_state {
	WAITING, /* for a thread: accepted, or a request arrived on an idle connection */
	PICKED,	 /* a thread has it, the first byte has not come yet */
	SERVED,	 /* reported; a worker does what it likes with it */
	IDLE,	 /* kept alive: some poller waits for the next request */
};

struct connection {
	struct handoff_event event; /* filled as things become known */
	__u64 sock;		    /* struct sock *, only a name here */
	__u64 first_byte_ns;	    /* 0: not there yet */
	__u64 main_read_ns;	    /* last read by the accepting thread; 0: it never read */
	__u32 idle_tid;		    /* who gave it to a poller */
	__u32 state;
};

/* Without preallocation: most hosts have few connections, some have very many. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* host pid << 32 | fd */
	__type(value, struct connection);
} handoff_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, __u64);
} handoff_socks SEC(".maps");

/* PICKED connections: who deletes the entry reports the row, so it is reported once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} handoff_picked SEC(".maps");

/* too big for the BPF stack */
static const struct connection empty_connection;

volatile __u64 min_duration_ns = 0; /* may change while it runs */

static __always_inline __u64 connection_key(__u32 tgid, __u32 fd)
{
	return (__u64)tgid << 32 | fd;
}

static __always_inline bool readable(__u64 sock)
{
	return BPF_CORE_READ((struct sock *)sock, sk_receive_queue.qlen) > 0;
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

static __always_inline void forget(__u64 key, struct connection *conn)
{
	__u64 sock = conn->sock;

	bpf_map_delete_elem(&handoff_socks, &sock);
	bpf_map_delete_elem(&handoff_picked, &key);
	bpf_map_delete_elem(&handoff_conns, &key);
}

/* A connection came out of accept(): it waits from now on. */
static __always_inline void accepted(__u32 fd)
{
	__u64 key = connection_key(current_tgid(), fd), sock;
	struct connection *conn;
	struct event_header *header;

	sock = (__u64)fd_to_sock(fd);
	if (!sock)
		return;
	if (bpf_map_update_elem(&handoff_conns, &key, &empty_connection, BPF_ANY) ||
	    bpf_map_update_elem(&handoff_socks, &sock, &key, BPF_ANY)) {
		bpf_map_delete_elem(&handoff_conns, &key);
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
		return;
	}
	conn = bpf_map_lookup_elem(&handoff_conns, &key);
	if (!conn)
		return;
	header = &conn->event.header;
	header_set_current(header);
	conn->event.main_tid = header->tid;
	conn->event.main_host_tid = header->host_tid;
	conn->event.main_ident = header->ident;
	__builtin_memcpy(conn->event.main_comm, header->comm, sizeof(header->comm));
	conn->event.fd = fd;
	conn->event.queue = HANDOFF_QUEUE_ACCEPT;
	read_addresses(&conn->event, (struct sock *)sock);
	conn->sock = sock;
	header->start_ns = bpf_ktime_get_ns();
	conn->state = WAITING;
	/* data_ready may have run since: it found no entry, but the queue tells */
	if (readable(sock))
		conn->first_byte_ns = header->start_ns;
}

static __always_inline void accept_returned(long ret)
{
	if (ret >= 0 && process_tracked(current_tgid()))
		accepted(ret);
}

/*
 * Every system call of the host pays for a raw sys_exit program; a system call's own tracepoint is
 * a third of that, whatever their number. Where there is no tracefs to attach to them: the former.
 */
SEC("?tracepoint/syscalls/sys_exit_accept")
int handoff_exit_accept(struct syscall_exit *ctx)
{
	accept_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_accept4")
int handoff_exit_accept4(struct syscall_exit *ctx)
{
	accept_returned(ctx->ret);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(handoff_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_accept4 || nr == NR_accept)
		accept_returned(ret);
	return 0;
}

/* Both the thread and the first byte are there: this is the row. */
static __always_inline void report(struct connection *conn)
{
	__u64 start = conn->event.header.start_ns, end = conn->event.header.end_ns;
	__u64 ready = conn->first_byte_ns > start ? conn->first_byte_ns : start;
	struct handoff_event *event;

	stat_add(STAT_SEEN, 1);
	if (end - start < min_duration_ns) {
		stat_add(STAT_FILTERED, 1);
		return;
	}
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	__builtin_memcpy(event, &conn->event, sizeof(*event));
	event->client_wait_ns = ready - start;
	event->handoff_ns = ready < end ? end - ready : 0;
	event_submit(event);
}

/* What had been picked up without a byte: the byte came, or will never come. */
static __always_inline void report_picked(__u64 key, struct connection *conn, __u64 now)
{
	if (bpf_map_delete_elem(&handoff_picked, &key))
		return; /* somebody else does */
	if (!conn->first_byte_ns)
		conn->first_byte_ns = now;
	conn->state = SERVED;
	report(conn);
}

/*
 * A kept-alive connection is also picked up when its client is gone: there is nothing to read but
 * the end of the stream, or, on TLS (which OpenSSL reads with read()), a close_notify alert, which
 * no encryption makes longer than 31 bytes and no request fits into. Nobody waited for that.
 */
static __always_inline bool only_farewell(struct connection *conn, __u32 pickup)
{
	enum { RCV_SHUTDOWN = 1, TLS_ALERT_MAX = 31 };
	struct tcp_sock *tcp = (struct tcp_sock *)conn->sock;
	struct sock *sock = (struct sock *)conn->sock;
	__u32 unread;

	if (!(BPF_CORE_READ_BITFIELD_PROBED(sock, sk_shutdown) & RCV_SHUTDOWN))
		return false;
	if (conn->event.family == AF_UNIX)
		return !readable(conn->sock);
	unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq) - 1; /* its FIN */
	return unread == 0 || (pickup == HANDOFF_PICKUP_read && unread <= TLS_ALERT_MAX);
}

static __always_inline void pick_up(__u64 key, struct connection *conn, __u32 pickup, __u64 now)
{
	struct event_header *header = &conn->event.header;
	__u64 start = header->start_ns;
	__u8 one = 1;

	if (conn->event.queue == HANDOFF_QUEUE_KEEPALIVE && only_farewell(conn, pickup)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		conn->state = SERVED;
		return;
	}
	header_set_current(header);
	header->start_ns = start;
	header->end_ns = now;
	conn->event.pickup = pickup;
	/* bytes there, yet nobody saw them come: the accepting thread read a part of them before */
	if (!conn->first_byte_ns && readable(conn->sock))
		conn->first_byte_ns = conn->main_read_ns ? conn->main_read_ns : now;
	if (conn->first_byte_ns) {
		conn->state = SERVED;
		report(conn);
		return;
	}
	conn->state = PICKED;
	if (bpf_map_update_elem(&handoff_picked, &key, &one, BPF_ANY)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
	}
}

/* An idle connection has a request: it waits since that request's first byte. */
static __always_inline void wait_again(struct connection *conn, __u64 now)
{
	conn->event.header.start_ns = conn->first_byte_ns ? conn->first_byte_ns : now;
	conn->event.queue = HANDOFF_QUEUE_KEEPALIVE;
	conn->main_read_ns = 0;
	conn->state = WAITING;
}

struct touch {
	__u32 fd;
	__u32 pickup;
	bool reads, writes, closes, polls_on, polls_off;
};

static __always_inline void touch_by_main(__u64 key, struct connection *conn, struct touch *touch,
					  __u64 now)
{
	if (conn->state == WAITING && touch->reads) {
		/* what it reads is not for the worker: the next byte counts */
		conn->main_read_ns = now;
		conn->first_byte_ns = 0;
	} else if (conn->state == IDLE && touch->polls_off) {
		wait_again(conn, now);
	}
}

static __always_inline void touch_by_other(__u64 key, struct connection *conn, struct touch *touch,
					   __u64 now)
{
	__u32 tid = current_tid();

	if (conn->state == IDLE) {
		if (tid == conn->idle_tid || touch->polls_off)
			conn->state = SERVED; /* it was its own poller's doing */
		else if (touch->reads)
			wait_again(conn,
				   now); /* a poller that needs no epoll_ctl, then this thread */
	}
	if (conn->state != WAITING)
		return;
	if (conn->main_read_ns && touch->writes) {
		/* the accepting thread read the request, a worker answers: nothing was handed over
		 */
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		forget(key, conn);
		return;
	}
	pick_up(key, conn, touch->pickup, now);
}

/* A function of its own, not inlined: every system call of the host passes through its caller. */
static __noinline int touched(struct touch *touch)
{
	__u64 key = connection_key(current_tgid(), touch->fd), now;
	struct connection *conn = bpf_map_lookup_elem(&handoff_conns, &key);

	if (!conn)
		return 0;
	now = bpf_ktime_get_ns();
	if (conn->state == PICKED && (conn->first_byte_ns || touch->closes))
		report_picked(key, conn, now);
	if (touch->closes) {
		forget(key, conn);
		return 0;
	}
	if (current_tid() == conn->event.main_host_tid)
		touch_by_main(key, conn, touch, now);
	else
		touch_by_other(key, conn, touch, now);
	if (conn->state == SERVED && touch->reads)
		conn->first_byte_ns = 0; /* what comes after this read may be the next request */
	/* once served, whoever gives the fd to a poller makes it idle */
	if (conn->state == SERVED && touch->polls_on) {
		conn->idle_tid = current_tid();
		if (!readable(conn->sock))
			conn->first_byte_ns = 0;
		else if (!conn->first_byte_ns)
			conn->first_byte_ns = now;
		conn->state = IDLE;
	}
	return 0;
}

static __always_inline void touched_by_poll(struct pt_regs *regs, __u32 pickup)
{
	struct touch touch = { .pickup = pickup };

	/* Python waits for one socket with poll() before a read with a time-out */
	if (SYSCALL_ARG2(regs) != 1 ||
	    bpf_probe_read_user(&touch.fd, sizeof(touch.fd), (void *)SYSCALL_ARG1(regs)))
		return;
	touched(&touch);
}

static __always_inline void touched_by_epoll_ctl(struct pt_regs *regs)
{
	__u32 op = SYSCALL_ARG2(regs);
	struct touch touch = {
		.fd = SYSCALL_ARG3(regs),
		.pickup = HANDOFF_PICKUP_epoll_ctl,
		.polls_on = op == EPOLL_CTL_ADD || op == EPOLL_CTL_MOD,
		.polls_off = op == EPOLL_CTL_DEL,
	};

	touched(&touch);
}

/* Compared with a switch: the compiler makes a few comparisons of it, every system call pays. */
SEC("tp_btf/sys_enter")
int BPF_PROG(handoff_touch, struct pt_regs *regs, long nr)
{
	struct touch touch = {};

#define READS(name)                                                                                \
	case NR_##name:                                                                            \
		touch.pickup = HANDOFF_PICKUP_##name;                                              \
		touch.reads = true;                                                                \
		break;
#define WRITES(name)                                                                               \
	case NR_##name:                                                                            \
		touch.pickup = HANDOFF_PICKUP_##name;                                              \
		touch.writes = true;                                                               \
		break;
#define OTHER(name)                                                                                \
	case NR_##name:                                                                            \
		touch.pickup = HANDOFF_PICKUP_##name;                                              \
		break;
	switch (nr) {
		READS(recvmsg)
		READS(recvmmsg)
		READS(read)
		READS(readv)
		WRITES(write)
		WRITES(writev)
		WRITES(sendto)
		WRITES(sendmsg)
		WRITES(sendmmsg)
		WRITES(sendfile)
		WRITES(shutdown)
		OTHER(ioctl)
		OTHER(fcntl)
		OTHER(setsockopt)
		OTHER(getsockopt)
		OTHER(getsockname)
		OTHER(getpeername)
	case NR_recvfrom:
		touch.pickup = HANDOFF_PICKUP_recvfrom;
		touch.reads = !(SYSCALL_ARG4(regs) & MSG_PEEK);
		break;
	case NR_close:
		touch.closes = true;
		break;
	case NR_epoll_ctl:
		touched_by_epoll_ctl(regs);
		return 0;
	case NR_poll:
		touched_by_poll(regs, HANDOFF_PICKUP_poll);
		return 0;
	case NR_ppoll:
		touched_by_poll(regs, HANDOFF_PICKUP_ppoll);
		return 0;
	default:
		return 0;
	}
	touch.fd = SYSCALL_ARG1(regs);
	touched(&touch);
	return 0;
}

static __always_inline void data_arrived(__u64 sock)
{
	__u64 *key = bpf_map_lookup_elem(&handoff_socks, &sock);
	struct connection *conn;
	__u64 now;

	if (!key)
		return;
	conn = bpf_map_lookup_elem(&handoff_conns, key);
	if (!conn || conn->sock != sock || conn->first_byte_ns)
		return;
	now = bpf_ktime_get_ns();
	conn->first_byte_ns = now;
	if (conn->state == PICKED)
		report_picked(*key, conn, now);
}

/* Every socket's "there is something to read", since 6.3 (kernel commit 40e0b0908142). */
SEC("?tp_btf/sk_data_ready")
int BPF_PROG(handoff_data_ready, const struct sock *sock)
{
	data_arrived((__u64)sock);
	return 0;
}

/*
 * Before 6.3: every TCP segment in ESTABLISHED, just before it is queued. Unix sockets have no such
 * hook there; for them the first byte is taken to be there when a thread or poller finds it.
 */
SEC("?tp_btf/tcp_probe")
int BPF_PROG(handoff_tcp_probe, struct sock *sock, struct sk_buff *skb)
{
	unsigned char flags[2] = {};
	unsigned char *header = BPF_CORE_READ(skb, data);

	/* bytes 12 and 13 of the TCP header: its length, FIN; a bare ACK brings nothing to read */
	bpf_probe_read_kernel(flags, sizeof(flags), header + 12);
	if (BPF_CORE_READ(skb, len) > (flags[0] >> 4) * 4 || flags[1] & 1)
		data_arrived((__u64)sock);
	return 0;
}
