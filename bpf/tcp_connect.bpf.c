// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Outbound handshakes, their cost and outcome, and the life of the connection. A socket enters
 * SYN_SENT in the connecting thread; later state changes run in the context of a packet or a timer.
 * A failure before the first SYN changes no state: only the return value of connect() shows it.
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "lib/compat.bpf.h"
#include "lib/syscall.bpf.h"
#include "lib/tcp.bpf.h"
#include "events/tcp_connect.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOL_SOCKET     1
#define SO_ERROR       4
#define SHUTDOWN_MASK  3
#define SOCK_DONE      (1 << 1) /* enum sock_flags: the peer's FIN was received */
#define ERRNO_MAX      4095
#define EINTR	       4
#define EBADF	       9
#define EFAULT	       14
#define ENOTSOCK       88
#define EAFNOSUPPORT   97
#define ECONNABORTED   103
#define EISCONN	       106
#define ETIMEDOUT      110
#define EALREADY       114
#define EINPROGRESS    115
#define ERESTART_FIRST 512 /* restarted, or turned into EINTR: ERESTARTSYS and similar */
#define ERESTART_LAST  516
#define CLOSED_ON_SOCKET_ERROR(error)                                                              \
	((error) == ETIMEDOUT ? TCP_CLOSED_BY_TIMEOUT : TCP_CLOSED_BY_RESET)

enum attempt_state {
	CONNECTING,
	CONNECTED,
	FAILED_UNSEEN, /* closed, and only the caller gets the error */
	FAILED,	       /* reported; a connect() that repeats the error is no attempt */
};

struct attempt {
	struct event_header header;	  /* the connecting thread; start of the handshake */
	struct tcp_connection connection; /* FAILED_UNSEEN: a copy; the end time is in the header */
	__u64 connected_ns;
	__u16 read_error; /* errno that the caller has read from the socket */
	__u8 state;
	__u8 closed_by;
	__u8 pad[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct attempt);
} connect_attempts SEC(".maps");

/*
 * Attempts without room in connect_attempts: their later events count as lost, and their errors are
 * no new attempts. Without room here, too, the end counts as lost at once. Of each socket the
 * entry is removed when the kernel frees it.
 */
struct lost_attempt {
	__u32 connected;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct lost_attempt);
} connect_lost SEC(".maps");

bool any_lost; /* false spares most hosts the look-up */

volatile __u64 min_duration_ns = 0; /* user space may change the value at any time */
const volatile bool only_chosen = false;
const volatile bool report_closed = true;

static __always_inline bool is_tcp(struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP &&
	       (family == AF_INET || family == AF_INET6);
}

static __always_inline __u32 error_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_err) & ERRNO_MAX;
}

/* Arguments of the current system call. */
struct call {
	__u64 arg1, arg2, arg3, arg4;
};

/* Single reads: the whole struct takes more than half of the BPF stack on arm64. */
static __always_inline bool read_call(struct call *ret)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	char *stack = BPF_CORE_READ(task, stack);
	struct pt_regs *regs = (struct pt_regs *)(stack + user_regs_offset());

	return !bpf_core_read(&ret->arg1, sizeof(ret->arg1), &SYSCALL_ARG1(regs)) &&
	       !bpf_core_read(&ret->arg2, sizeof(ret->arg2), &SYSCALL_ARG2(regs)) &&
	       !bpf_core_read(&ret->arg3, sizeof(ret->arg3), &SYSCALL_ARG3(regs)) &&
	       !bpf_core_read(&ret->arg4, sizeof(ret->arg4), &SYSCALL_ARG4(regs));
}

/* ---- rows ---- */

/* Reserves an outcome; end_ns is the present time unless already set. */
static __always_inline struct tcp_connect_event *outcome_reserve(const struct event_header *header,
								 __u32 outcome, __u32 error)
{
	struct tcp_connect_event *event;

	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return NULL;
	__builtin_memcpy(&event->header, header, sizeof(*header));
	if (!event->header.end_ns)
		event->header.end_ns = bpf_ktime_get_ns();
	event->kind = TCP_CONNECT_OUTCOME;
	event->outcome = outcome;
	event->error = error;
	return event;
}

static __always_inline void report_outcome(struct sock *sk, const struct attempt *attempt,
					   __u32 outcome, __u32 error)
{
	struct tcp_connect_event *event = outcome_reserve(&attempt->header, outcome, error);

	if (!event)
		return;
	tcp_read_addresses(&event->connection, sk);
	tcp_read_figures(&event->connection, sk,
			 outcome == TCP_CONNECT_success ? TCP_STATE_ESTABLISHED : TCP_STATE_CLOSE);
	event_submit(event);
}

static __always_inline void report_success(struct sock *sk, struct attempt *attempt, __u64 now)
{
	if (now - attempt->header.start_ns >= min_duration_ns) {
		report_outcome(sk, attempt, TCP_CONNECT_success, 0);
		return;
	}
	stat_add(STAT_SEEN, 1);
	stat_add(STAT_FILTERED, 1);
}

static __always_inline void report_end(struct sock *sk, const struct attempt *attempt,
				       int old_state)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	struct tcp_connect_event *event;
	__u64 received;

	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	__builtin_memcpy(&event->header, &attempt->header, sizeof(event->header));
	event->header.start_ns = attempt->connected_ns;
	event->header.end_ns = bpf_ktime_get_ns();
	event->kind = TCP_CONNECT_CLOSED;
	event->closed_by = attempt->closed_by;
	tcp_read_addresses(&event->connection, sk);
	tcp_read_figures(&event->connection, sk, old_state);
	event->bytes_sent = BPF_CORE_READ(tcp, bytes_sent) - BPF_CORE_READ(tcp, bytes_retrans);
	/* the FIN is counted as a byte */
	received = BPF_CORE_READ(tcp, bytes_received);
	if (received && BPF_CORE_READ(sk, __sk_common.skc_flags) & SOCK_DONE)
		received--;
	event->bytes_received = received;
	event_submit(event);
}

/* ---- states ---- */

static __always_inline void attempt_lost(__u64 key)
{
	struct lost_attempt lost = {};
	__u64 n = 1;

	any_lost = true;
	if (bpf_map_update_elem(&connect_lost, &key, &lost, BPF_ANY) && report_closed)
		n = 2;
	stat_add(STAT_SEEN, n);
	stat_add(STAT_LOST_STATE, n);
}

/* State change of a socket without a known attempt: counts the missing end row. */
static __always_inline void lost_attempt_moved(__u64 key, int old_state, int state)
{
	struct lost_attempt *attempt = any_lost ? bpf_map_lookup_elem(&connect_lost, &key) : NULL;

	if (!attempt)
		return;
	if (old_state == TCP_STATE_SYN_SENT && state == TCP_STATE_ESTABLISHED) {
		attempt->connected = true;
	} else if (state == TCP_STATE_CLOSE && attempt->connected && report_closed) {
		attempt->connected = false;
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
	}
}

static __always_inline void attempt_started(struct sock *sk)
{
	struct attempt attempt = { .state = CONNECTING };
	__u64 key = (__u64)sk;

	if (only_chosen && !process_tracked(current_tgid()))
		return;
	header_set_current(&attempt.header);
	attempt.header.start_ns = bpf_ktime_get_ns();
	if (any_lost)
		bpf_map_delete_elem(&connect_lost, &key);
	if (bpf_map_update_elem(&connect_attempts, &key, &attempt, BPF_ANY))
		attempt_lost(key);
}

static __always_inline void attempt_established(struct sock *sk, struct attempt *attempt)
{
	__u64 now = bpf_ktime_get_ns();

	attempt->connected_ns = now;
	attempt->state = CONNECTED;
	report_success(sk, attempt, now);
}

/*
 * The kernel sets the error just before closing: a caller on a different CPU may have read the
 * error in between. connect() itself closes without an error when no port is free.
 */
static __always_inline void attempt_failed(struct sock *sk, struct attempt *attempt)
{
	__u32 error = error_of(sk);

	if (!error)
		error = attempt->read_error;
	if (error) {
		report_outcome(sk, attempt, TCP_CONNECT_failed, error);
		attempt->state = FAILED;
	} else if (BPF_CORE_READ_BITFIELD_PROBED(sk, sk_shutdown) == SHUTDOWN_MASK) {
		report_outcome(sk, attempt, TCP_CONNECT_aborted, 0); /* close() by the caller */
		attempt->state = FAILED;
	} else {
		attempt->header.end_ns = bpf_ktime_get_ns();
		tcp_read_addresses(&attempt->connection, sk);
		tcp_read_figures(&attempt->connection, sk, TCP_STATE_CLOSE);
		attempt->state = FAILED_UNSEEN;
	}
}

static __always_inline void report_unseen(struct attempt *attempt, __u32 outcome, __u32 error)
{
	struct tcp_connect_event *event = outcome_reserve(&attempt->header, outcome, error);

	attempt->state = FAILED;
	if (!event)
		return;
	__builtin_memcpy(&event->connection, &attempt->connection, sizeof(event->connection));
	event_submit(event);
}

static __always_inline void attempt_ended(struct sock *sk, struct attempt *attempt, int old_state)
{
	__u64 key = (__u64)sk;
	__u32 error = error_of(sk);

	if (!attempt->closed_by)
		attempt->closed_by = error ? CLOSED_ON_SOCKET_ERROR(error) : TCP_CLOSED_BY_LOCAL;
	if (report_closed)
		report_end(sk, attempt, old_state);
	bpf_map_delete_elem(&connect_attempts, &key);
}

/* In the connecting or closing thread, or in a soft interrupt for packets and timers. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(tcp_connect_state, struct sock *sk, int old_state, int state)
{
	__u64 key = (__u64)sk;
	struct attempt *attempt;

	if (!is_tcp(sk))
		return 0;
	if (state == TCP_STATE_SYN_SENT) {
		attempt_started(sk);
		return 0;
	}
	attempt = bpf_map_lookup_elem(&connect_attempts, &key);
	if (!attempt) {
		lost_attempt_moved(key, old_state, state);
		return 0;
	}
	if (attempt->state == CONNECTING && state == TCP_STATE_ESTABLISHED)
		attempt_established(sk, attempt);
	else if (attempt->state == CONNECTING && state == TCP_STATE_CLOSE)
		attempt_failed(sk, attempt);
	else if (attempt->state == CONNECTED && state == TCP_STATE_CLOSE)
		attempt_ended(sk, attempt, old_state);
	else if (old_state == TCP_STATE_ESTABLISHED)
		attempt->closed_by = state == TCP_STATE_CLOSE_WAIT ? TCP_CLOSED_BY_REMOTE
								   : TCP_CLOSED_BY_LOCAL;
	return 0;
}

/*
 * The socket is freed. An attempt without a reported error was no failure: shutdown() or similar
 * ended it.
 */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(tcp_connect_destroy, struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct attempt *attempt = bpf_map_lookup_elem(&connect_attempts, &key);

	if (any_lost)
		bpf_map_delete_elem(&connect_lost, &key);
	if (!attempt)
		return 0;
	if (attempt->state == FAILED_UNSEEN)
		report_unseen(attempt, TCP_CONNECT_aborted, 0);
	bpf_map_delete_elem(&connect_attempts, &key);
	return 0;
}

/* ---- errors seen by the caller ---- */

/* Reads the address given to connect(); false: not an IP address. */
static __always_inline bool read_target(struct tcp_connection *ret, __u64 address)
{
	struct {
		__u16 family;
		__be16 port;
		__u32 v4;
		__u32 v6[4];
	} sockaddr = {};

	/* sockaddr_in is shorter: read only the common part first */
	if (bpf_probe_read_user(&sockaddr, 8, (void *)address))
		return false;
	ret->remote_port = __builtin_bswap16(sockaddr.port);
	if (sockaddr.family == AF_INET6 &&
	    !bpf_probe_read_user(&sockaddr.v6, sizeof(sockaddr.v6), (void *)(address + 8))) {
		__builtin_memcpy(ret->remote_ip, sockaddr.v6, sizeof(sockaddr.v6));
		ret->family = ip_is_v4_mapped(sockaddr.v6) ? TCP_FAMILY_IPV4 : TCP_FAMILY_IPV6;
		return true;
	}
	if (sockaddr.family != AF_INET)
		return false;
	__builtin_memset(ret->remote_ip, 0, sizeof(ret->remote_ip));
	ip_set_v4(ret->remote_ip, sockaddr.v4);
	ret->family = TCP_FAMILY_IPV4;
	return true;
}

static __always_inline bool is_no_attempt(long error)
{
	return error == EINTR || error == EBADF || error == EFAULT || error == ENOTSOCK ||
	       error == EAFNOSUPPORT || error == ECONNABORTED || error == EISCONN ||
	       error == EALREADY || error == EINPROGRESS ||
	       (error >= ERESTART_FIRST && error <= ERESTART_LAST);
}

/* The start is unknown: connect() fails within microseconds when there is no route. */
static __always_inline void report_immediate(struct sock *sk, __u64 address, long error)
{
	struct tcp_connection connection = {};
	struct event_header header = {};
	struct tcp_connect_event *event;

	tcp_read_addresses(&connection, sk);
	if (!read_target(&connection, address))
		return;
	connection.state = TCP_STATE_CLOSE;
	header_set_current(&header);
	header.start_ns = bpf_ktime_get_ns();
	event = outcome_reserve(&header, TCP_CONNECT_failed, error);
	if (!event)
		return;
	__builtin_memcpy(&event->connection, &connection, sizeof(connection));
	event_submit(event);
}

static __always_inline void caller_got_error(struct attempt *attempt, __u32 error)
{
	if (attempt->state == CONNECTING)
		attempt->read_error = error;
	else if (attempt->state == FAILED_UNSEEN)
		report_unseen(attempt, TCP_CONNECT_failed, error);
}

/* True once: a further attempt on the socket may fail immediately. */
static __always_inline bool is_lost(__u64 key)
{
	return any_lost && bpf_map_delete_elem(&connect_lost, &key) == 0;
}

static __always_inline void connect_failed(long error)
{
	struct attempt *attempt;
	struct call call = {};
	struct sock *sk;
	__u64 key;

	if ((only_chosen && !process_tracked(current_tgid())) || !read_call(&call))
		return;
	sk = fd_to_tcp_sock(call.arg1);
	if (!sk || !is_tcp(sk))
		return;
	key = (__u64)sk;
	attempt = bpf_map_lookup_elem(&connect_attempts, &key);
	if (!attempt) {
		if (!is_no_attempt(error) && !is_lost(key))
			report_immediate(sk, call.arg2, error);
		return;
	}
	if (!is_no_attempt(error))
		caller_got_error(attempt, error);
	if (attempt->state == FAILED)
		bpf_map_delete_elem(&connect_attempts, &key);
}

/* getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, ...): how asynchronous callers hear the outcome. */
static __always_inline void asked_for_error(void)
{
	struct attempt *attempt;
	struct call call = {};
	int error = 0;
	__u64 key;

	if (!read_call(&call) || call.arg2 != SOL_SOCKET || call.arg3 != SO_ERROR)
		return;
	key = (__u64)fd_to_tcp_sock(call.arg1);
	attempt = bpf_map_lookup_elem(&connect_attempts, &key);
	if (!attempt || (attempt->state != CONNECTING && attempt->state != FAILED_UNSEEN))
		return;
	if (!bpf_probe_read_user(&error, sizeof(error), (void *)call.arg4) && error)
		caller_got_error(attempt, error & ERRNO_MAX);
}

/* The end of connect(), in the calling thread. */
SEC("?tracepoint/syscalls/sys_exit_connect")
int tcp_connect_exit_connect(struct syscall_exit *ctx)
{
	if (ctx->ret < 0 && ctx->ret != -EINPROGRESS)
		connect_failed(-ctx->ret);
	return 0;
}

/* The end of getsockopt(), in the calling thread. */
SEC("?tracepoint/syscalls/sys_exit_getsockopt")
int tcp_connect_exit_getsockopt(struct syscall_exit *ctx)
{
	if (ctx->ret == 0)
		asked_for_error();
	return 0;
}

/* The fallback without tracefs: runs at the end of every system call of the host. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(tcp_connect_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_connect && ret < 0 && ret != -EINPROGRESS)
		connect_failed(-ret);
	else if (nr == NR_getsockopt && ret == 0)
		asked_for_error();
	return 0;
}
