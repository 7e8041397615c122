// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The wait of a connection for a worker thread: from accept(), or on a kept-alive connection from
 * the next request's arrival, to the first touch by a different thread. All three generations of
 * gunicorn's gthread workers, ThreadingHTTPServer and similar servers follow the states of
 * handoff/connection.bpf.h. A server that reads in the accepting thread (sync workers, asyncio)
 * stays in WAITING and produces no rows.
 *
 * The hooks are chosen so that unrelated system calls pay least. The entries of a few system calls
 * have tracepoints of their own: all further calls pay 30-50 ns in total, for any number of such
 * tracepoints. Reads by any call and descriptor are seen at the end of the socket's read, the end
 * of a connection in its TCP state. No hook runs on read(), write() or close().
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "lib/syscall.bpf.h"
#include "handoff/connection.bpf.h"
#include "handoff/touch.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define EPOLL_CTL_ADD 1
#define EPOLL_CTL_DEL 2
#define EPOLL_CTL_MOD 3
#define MSG_PEEK      2

/* include/net/tcp_states.h */
enum { TCP_STATE_FIN_WAIT1 = 4, TCP_STATE_CLOSE = 7, TCP_STATE_LAST_ACK = 9 };

static __always_inline void accept_returned(long ret)
{
	if (ret >= 0 && process_tracked(current_tgid()))
		connection_accepted(ret);
}

static __always_inline void entered_read(__u32 fd, __u32 flags)
{
	struct touch touch = { .pickup = HANDOFF_PICKUP_recvfrom, .reads = !(flags & MSG_PEEK) };

	fd_touched(fd, &touch);
}

static __always_inline void entered_write(__u32 fd)
{
	struct touch touch = { .pickup = HANDOFF_PICKUP_sendto, .writes = true };

	fd_touched(fd, &touch);
}

static __always_inline void entered_ioctl(__u32 fd)
{
	struct touch touch = { .pickup = HANDOFF_PICKUP_ioctl };

	fd_touched(fd, &touch);
}

static __always_inline void entered_epoll_ctl(__u32 op, __u32 fd)
{
	struct touch touch = {
		.pickup = HANDOFF_PICKUP_epoll_ctl,
		.polls_on = op == EPOLL_CTL_ADD || op == EPOLL_CTL_MOD,
		.polls_off = op == EPOLL_CTL_DEL,
	};

	fd_touched(fd, &touch);
}

/* Before a read with a timeout Python calls poll() on a single socket. */
static __always_inline void entered_poll(__u64 fds, __u64 n, __u32 pickup)
{
	struct touch touch = { .pickup = pickup };
	__u32 fd;

	if (n != 1 || !process_may_be_known(current_tgid()) ||
	    bpf_probe_read_user(&fd, sizeof(fd), (void *)fds))
		return;
	fd_touched(fd, &touch);
}

/* The end of accept() and accept4(), in the accepting thread. */
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

/* The entries of touching system calls, in the calling thread. */
SEC("?tracepoint/syscalls/sys_enter_recvfrom")
int handoff_enter_recvfrom(struct syscall_enter *ctx)
{
	entered_read(ctx->args[0], ctx->args[3]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_sendto")
int handoff_enter_sendto(struct syscall_enter *ctx)
{
	entered_write(ctx->args[0]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_ioctl")
int handoff_enter_ioctl(struct syscall_enter *ctx)
{
	entered_ioctl(ctx->args[0]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_epoll_ctl")
int handoff_enter_epoll_ctl(struct syscall_enter *ctx)
{
	entered_epoll_ctl(ctx->args[1], ctx->args[2]);
	return 0;
}

/* absent on arm64, where poll() is ppoll() */
SEC("?tracepoint/syscalls/sys_enter_poll")
int handoff_enter_poll(struct syscall_enter *ctx)
{
	entered_poll(ctx->args[0], ctx->args[1], HANDOFF_PICKUP_poll);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_ppoll")
int handoff_enter_ppoll(struct syscall_enter *ctx)
{
	entered_poll(ctx->args[0], ctx->args[1], HANDOFF_PICKUP_ppoll);
	return 0;
}

/* The fallback without tracefs: costs every system call of the host 80 ns. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(handoff_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_accept4 || nr == NR_accept)
		accept_returned(ret);
	return 0;
}

/* The fallback without tracefs for the entries above. */
SEC("?tp_btf/sys_enter")
int BPF_PROG(handoff_enter, struct pt_regs *regs, long nr)
{
	__u64 arg1 = SYSCALL_ARG1(regs), arg2 = SYSCALL_ARG2(regs);

	if (nr == NR_recvfrom)
		entered_read(arg1, SYSCALL_ARG4(regs));
	else if (nr == NR_sendto)
		entered_write(arg1);
	else if (nr == NR_ioctl)
		entered_ioctl(arg1);
	else if (nr == NR_epoll_ctl)
		entered_epoll_ctl(arg2, SYSCALL_ARG3(regs));
	else if (nr == NR_poll)
		entered_poll(arg1, arg2, HANDOFF_PICKUP_poll);
	else if (nr == NR_ppoll)
		entered_poll(arg1, arg2, HANDOFF_PICKUP_ppoll);
	return 0;
}

/* The end of any socket's read, in the reader's context; since 6.3 (6e6eda44b939). */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(handoff_recv_length, struct sock *sock, int ret, int flags)
{
	if (!(flags & MSG_PEEK) && port_is_accepted(sock))
		read_ended((__u64)sock, ret);
	return 0;
}

/*
 * Before 6.3: TCP reads that returned data, in the reader's context. The length is unknown: assume
 * the length of OpenSSL's first read, a record header.
 */
SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(handoff_rcv_space, struct sock *sock)
{
	enum { TLS_RECORD_HEADER = 5 };

	if (port_is_accepted(sock))
		read_ended((__u64)sock, TLS_RECORD_HEADER);
	return 0;
}

/* Data arrives at any socket, mostly in a soft interrupt; since 6.3 (40e0b0908142). */
SEC("?tp_btf/sk_data_ready")
int BPF_PROG(handoff_data_ready, const struct sock *sock)
{
	if (port_is_accepted(sock))
		data_arrived((__u64)sock);
	return 0;
}

/*
 * Before 6.3: every TCP segment in ESTABLISHED, before it is queued, mostly in a soft interrupt.
 * Unix sockets have no such hook: the first byte counts from the generation a thread or poller
 * finds it.
 */
SEC("?tp_btf/tcp_probe")
int BPF_PROG(handoff_tcp_probe, struct sock *sock, struct sk_buff *skb)
{
	unsigned char flags[2] = {};
	unsigned char *header;

	if (!port_is_accepted(sock))
		return 0;
	header = BPF_CORE_READ(skb, data);
	/* bytes 12 and 13 of the TCP header: header length and flags; a bare ACK carries no data */
	bpf_probe_read_kernel(flags, sizeof(flags), header + 12);
	if (BPF_CORE_READ(skb, len) > (flags[0] >> 4) * 4 || flags[1] & 1)
		data_arrived((__u64)sock);
	return 0;
}

/* A TCP socket changes its state: in a thread's context or in a soft interrupt. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(handoff_tcp_state, const struct sock *sock, int old_state, int state)
{
	if (state == TCP_STATE_FIN_WAIT1 || state == TCP_STATE_LAST_ACK || state == TCP_STATE_CLOSE)
		tcp_ended((__u64)sock);
	return 0;
}

/* A TCP socket is freed: in a thread's context or in a soft interrupt. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(handoff_tcp_destroy, struct sock *sock)
{
	tcp_gone((__u64)sock);
	return 0;
}
