// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How long a connection waited for a worker thread: from accept() (or, on a kept-alive
 * connection, from the arrival of the next request) to the first touch of it by a thread
 * other than the one that accepted it. The three generations of gunicorn's gthread workers,
 * ThreadingHTTPServer and the like all follow the states of lib/handoff.bpf.h; a server that reads
 * where it accepts (sync workers, asyncio) never leaves WAITING and yields nothing.
 *
 * Touches are seen where those who have nothing to do with it pay least. The entry of a few system
 * calls, by each one's own tracepoint: others pay 30-50 ns for these being there at all, however
 * many there are. Reads by any call, under any descriptor: where the socket's read ends. The end
 * of a connection: its TCP state. Nothing looks at read(), write() or close().
 */
#include "underspan.bpf.h"
#include "handoff.bpf.h"
#include "socket.bpf.h"
#include "syscall.bpf.h"

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
		accepted(ret);
}

static __always_inline void entered_read(__u32 fd, __u32 flags)
{
	struct touch touch = { .pickup = HANDOFF_PICKUP_recvfrom, .reads = !(flags & MSG_PEEK) };

	touched(fd, &touch);
}

static __always_inline void entered_write(__u32 fd)
{
	struct touch touch = { .pickup = HANDOFF_PICKUP_sendto, .writes = true };

	touched(fd, &touch);
}

static __always_inline void entered_ioctl(__u32 fd)
{
	struct touch touch = { .pickup = HANDOFF_PICKUP_ioctl };

	touched(fd, &touch);
}

static __always_inline void entered_epoll_ctl(__u32 op, __u32 fd)
{
	struct touch touch = {
		.pickup = HANDOFF_PICKUP_epoll_ctl,
		.polls_on = op == EPOLL_CTL_ADD || op == EPOLL_CTL_MOD,
		.polls_off = op == EPOLL_CTL_DEL,
	};

	touched(fd, &touch);
}

/* Python waits for one socket with poll() before a read with a time-out. */
static __always_inline void entered_poll(__u64 fds, __u64 n, __u32 pickup)
{
	struct touch touch = { .pickup = pickup };
	__u32 fd;

	if (n != 1 || bpf_probe_read_user(&fd, sizeof(fd), (void *)fds))
		return;
	touched(fd, &touch);
}

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

/* not on arm64, whose poll() is ppoll() */
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

/* Where there is no tracefs to attach to the above: every system call of the host pays 80 ns. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(handoff_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_accept4 || nr == NR_accept)
		accept_returned(ret);
	return 0;
}

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

/* Every socket's reads as they end, since 6.3 (kernel commit 6e6eda44b939). */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(handoff_recv_length, struct sock *sock, int ret, int flags)
{
	if (!(flags & MSG_PEEK))
		read_ended((__u64)sock, ret);
	return 0;
}

/*
 * Before 6.3: TCP only, and only reads that found something. How much is not told: as much as
 * OpenSSL's first read takes, the header of a record.
 */
SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(handoff_rcv_space, struct sock *sock)
{
	enum { TLS_RECORD_HEADER = 5 };

	read_ended((__u64)sock, TLS_RECORD_HEADER);
	return 0;
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

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(handoff_tcp_state, const struct sock *sock, int old_state, int state)
{
	if (state == TCP_STATE_FIN_WAIT1 || state == TCP_STATE_LAST_ACK || state == TCP_STATE_CLOSE)
		tcp_ended((__u64)sock);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(handoff_tcp_destroy, struct sock *sock)
{
	tcp_gone((__u64)sock);
	return 0;
}
