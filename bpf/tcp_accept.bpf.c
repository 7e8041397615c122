// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Time of a connection in the accept queue: from the creation of its socket, at the last ACK of the
 * handshake, until accept() returns. The handshake runs in the context of the packet, so the owner
 * is known only from accept(). The listener itself counts drops (a full queue and further reasons);
 * user space fetches that counter every second.
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "lib/compat.bpf.h"
#include "lib/syscall.bpf.h"
#include "lib/tcp.bpf.h"
#include "events/tcp_accept.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct waiting {
	__u64 start_ns;
	__u64 listener; /* struct sock *; 0: not known */
	__u32 queue_len, queue_max;
	__u32 handshake_rtt_us;
	__u8 queued; /* the handshake is complete */
	__u8 taken;  /* accepted: the socket has an owner */
	__u8 pad[2];
	struct tcp_connection connection; /* filled when the connection closes in the queue */
};

struct listener {
	struct event_header owner; /* start_ns: drops until then are reported */
	struct tcp_connection connection;
	__u32 drops;	/* reported */
	__u32 reported; /* reported to user space */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct waiting);
} accept_waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct listener);
} accept_listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tcp_accept_event);
} accept_report SEC(".maps");

volatile __u64 min_duration_ns = 0; /* user space may change the value at any time */
const volatile bool only_chosen = false;

static const struct listener empty_listener;

static __always_inline bool wanted(__u32 host_pid)
{
	return !only_chosen || process_tracked(host_pid);
}

static __always_inline bool is_tcp(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
}

static __always_inline __u8 state_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_state);
}

static __always_inline __u32 drops_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_drops.counter);
}

/* ---- listeners ---- */

/* Creates a listener's entry from its socket; NULL: exists already, or the map is full. */
static __always_inline struct listener *listener_new(__u64 key)
{
	struct sock *sk = (struct sock *)key;
	struct listener *listener;

	if (bpf_map_update_elem(&accept_listeners, &key, &empty_listener, BPF_NOEXIST))
		return NULL;
	listener = bpf_map_lookup_elem(&accept_listeners, &key);
	if (!listener)
		return NULL;
	tcp_read_addresses(&listener->connection, sk);
	listener->connection.state = TCP_STATE_LISTEN;
	listener->drops = drops_of(sk);
	listener->owner.start_ns = bpf_ktime_get_ns();
	return listener;
}

static __always_inline void listener_set_owner(struct listener *listener)
{
	__u64 since = listener->owner.start_ns;

	header_set_current(&listener->owner);
	listener->owner.start_ns = since;
}

/* Fills an event with the drops since the last one; 0 drops: nothing to report. */
static __always_inline void fill_dropped(struct tcp_accept_event *event, struct sock *sk,
					 const struct listener *listener)
{
	__builtin_memcpy(&event->header, &listener->owner, sizeof(event->header));
	__builtin_memcpy(&event->connection, &listener->connection, sizeof(event->connection));
	__builtin_memcpy(event->listen_ip, listener->connection.local_ip, sizeof(event->listen_ip));
	event->header.end_ns = bpf_ktime_get_ns();
	event->queue_len = BPF_CORE_READ(sk, sk_ack_backlog);
	event->queue_max = BPF_CORE_READ(sk, sk_max_ack_backlog);
	event->kind = TCP_ACCEPT_DROPPED;
}

/* The socket stops listening: the last chance to report its drops. */
static __always_inline void listener_stopped(struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct listener *listener = bpf_map_lookup_elem(&accept_listeners, &key);
	__u32 drops = drops_of(sk);
	struct tcp_accept_event *event;

	if (!listener && drops) { /* the map was full */
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
	}
	if (!listener || drops == listener->drops || !wanted(listener->owner.host_pid))
		return;
	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	fill_dropped(event, sk, listener);
	event->drops = drops - listener->drops;
	event_submit(event);
	listener->drops = drops;
}

/*
 * Run by user space every second, for each listener. 1: accept_report is filled, whose rows user
 * space counts. No iterator over the map: kernels in lockdown refuse iterators that can write to
 * values (6.18, EPERM).
 */
SEC("raw_tp")
int BPF_PROG(tcp_accept_ask, __u64 sock)
{
	const __u32 only = 0;
	struct listener *listener = bpf_map_lookup_elem(&accept_listeners, &sock);
	struct tcp_accept_event *event = bpf_map_lookup_elem(&accept_report, &only);
	struct sock *sk = (struct sock *)sock;
	__u32 drops;

	if (!listener || !event)
		return 0;
	drops = drops_of(sk);
	if (drops == listener->drops && listener->reported)
		return 0;
	if (!wanted(listener->owner.host_pid)) {
		listener->drops = drops;
		return 0;
	}
	__builtin_memset(event, 0, sizeof(*event));
	fill_dropped(event, sk, listener);
	event->drops = drops - listener->drops;
	if (!event->drops)
		event->kind = TCP_ACCEPT_LISTENING;
	listener->owner.start_ns = event->header.end_ns;
	listener->drops = drops;
	listener->reported = 1;
	return 1;
}

/* Run by user space once at the start, for each open file: finds the existing listeners. */
SEC("iter/task_file")
int tcp_accept_find(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct listener *listener;
	struct sock *sk;

	if (!task || !file || !file_is_socket(file))
		return 0;
	sk = file_sock(file);
	if (!sk || state_of(sk) != TCP_STATE_LISTEN || !is_tcp(sk))
		return 0;
	listener = listener_new((__u64)sk);
	if (!listener)
		return 0;
	listener->owner.host_pid = BPF_CORE_READ(task, tgid);
	listener->owner.host_tid = BPF_CORE_READ(task, pid);
	header_set_ns_ids(&listener->owner, task);
	BPF_CORE_READ_INTO(&listener->owner.comm, task, comm);
	return 0;
}

/* ---- connections ---- */

/*
 * The listener from which a new child socket was cloned. The tracepoint runs before the clone's
 * lists are initialized: the head of an empty list still points to the head inside the listener.
 */
static __always_inline struct sock *listener_of(struct sock *child)
{
	struct tcp_sock *tcp = (struct tcp_sock *)child;
	struct sock *sk = (void *)BPF_CORE_READ(tcp, tsorted_sent_queue.next) -
			  bpf_core_field_offset(struct tcp_sock, tsorted_sent_queue);

	if (state_of(sk) != TCP_STATE_LISTEN ||
	    BPF_CORE_READ(sk, __sk_common.skc_num) != BPF_CORE_READ(child, __sk_common.skc_num))
		return NULL;
	return sk;
}

static __always_inline void child_born(struct sock *sk)
{
	struct waiting waiting = {
		.start_ns = bpf_ktime_get_ns(),
		.listener = (__u64)listener_of(sk),
	};
	__u64 key = (__u64)sk;

	if (!waiting.listener)
		stat_add(STAT_READ_FAIL, 1);
	if (bpf_map_update_elem(&accept_waiting, &key, &waiting, BPF_ANY)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
	}
}

/*
 * The listener has just counted the child. (With TCP Fast Open the child was counted earlier, and
 * the listener may be gone.)
 */
static __always_inline void child_queued(struct sock *sk, struct waiting *waiting)
{
	struct sock *listener = (struct sock *)waiting->listener;

	waiting->queued = true;
	waiting->handshake_rtt_us = tcp_srtt_us(sk);
	if (!listener)
		return;
	waiting->queue_len = BPF_CORE_READ(listener, sk_ack_backlog);
	waiting->queue_max = BPF_CORE_READ(listener, sk_max_ack_backlog);
}

static __always_inline void child_moved(struct sock *sk, int state)
{
	__u64 key = (__u64)sk;
	struct waiting *waiting = bpf_map_lookup_elem(&accept_waiting, &key);

	if (!waiting)
		return;
	if (BPF_CORE_READ(sk, sk_socket))
		waiting->taken = true;
	else if (state == TCP_STATE_ESTABLISHED)
		child_queued(sk, waiting);
	else if (state == TCP_STATE_CLOSE) /* the addresses are lost after CLOSE */
		tcp_read_addresses(&waiting->connection, sk);
}

/* In the context of the state's cause: a thread (listen, close) or a packet in a soft interrupt. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(tcp_accept_state, struct sock *sk, int old_state, int state)
{
	struct listener *listener;

	if (!is_tcp(sk))
		return 0;
	if (old_state == TCP_STATE_LISTEN && state == TCP_STATE_SYN_RECV) {
		child_born(sk);
	} else if (state == TCP_STATE_LISTEN) {
		listener = listener_new((__u64)sk);
		if (listener)
			listener_set_owner(listener);
	} else if (old_state == TCP_STATE_LISTEN) {
		listener_stopped(sk);
	} else {
		child_moved(sk, state);
	}
	return 0;
}

static __always_inline void fill_waited(struct tcp_accept_event *event, struct sock *sk,
					const struct waiting *waiting,
					const struct listener *listener)
{
	event->header.start_ns = waiting->start_ns;
	event->header.end_ns = bpf_ktime_get_ns();
	if (waiting->connection.family)
		__builtin_memcpy(&event->connection, &waiting->connection,
				 sizeof(event->connection));
	else
		tcp_read_addresses(&event->connection, sk);
	tcp_read_figures(&event->connection, sk, state_of(sk));
	event->queue_len = waiting->queue_len;
	event->queue_max = waiting->queue_max;
	event->handshake_rtt_us = waiting->handshake_rtt_us;
	if (listener)
		__builtin_memcpy(event->listen_ip, listener->connection.local_ip,
				 sizeof(event->listen_ip));
}

static __always_inline void report_accepted(struct sock *sk, const struct waiting *waiting)
{
	__u64 key = waiting->listener;
	struct listener *listener = bpf_map_lookup_elem(&accept_listeners, &key);
	struct tcp_accept_event *event;

	if (!listener && key)
		listener = listener_new(key);
	if (listener && listener->owner.host_tid != current_tid())
		listener_set_owner(listener);
	stat_add(STAT_SEEN, 1);
	if (!wanted(current_tgid()) || bpf_ktime_get_ns() - waiting->start_ns < min_duration_ns) {
		stat_add(STAT_FILTERED, 1);
		return;
	}
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	header_set_current(&event->header);
	event->kind = TCP_ACCEPT_ACCEPTED;
	fill_waited(event, sk, waiting, listener);
	event_submit(event);
}

static __always_inline void accept_returned(long ret)
{
	struct sock *sk = ret >= 0 ? fd_to_tcp_sock(ret) : NULL;
	__u64 key = (__u64)sk;
	struct waiting *waiting;

	if (!sk)
		return;
	waiting = bpf_map_lookup_elem(&accept_waiting, &key);
	if (!waiting)
		return;
	report_accepted(sk, waiting);
	bpf_map_delete_elem(&accept_waiting, &key);
}

/*
 * The end of accept(), in the accepting thread. A raw sys_exit program costs every system call of
 * the host; tracepoints of single calls cost a third, regardless of their number. The raw program
 * is the fallback for hosts without tracefs.
 */
SEC("?tracepoint/syscalls/sys_exit_accept")
int tcp_accept_exit_accept(struct syscall_exit *ctx)
{
	accept_returned(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_accept4")
int tcp_accept_exit_accept4(struct syscall_exit *ctx)
{
	accept_returned(ctx->ret);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(tcp_accept_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_accept4 || nr == NR_accept)
		accept_returned(ret);
	return 0;
}

/* The only member used; position and size of the struct differ between kernels. */
struct trace_event_raw_io_uring_complete___any {
	int res;
} __attribute__((preserve_access_index));

/*
 * io_uring completes an accept, in the thread of the request or in a kernel worker of that thread.
 * The result is in the completion, not in a system call's return value. Results of further request
 * types are numbers as well, but never the descriptor of a connection that is still in the map.
 */
SEC("?tracepoint/io_uring/io_uring_complete")
int tcp_accept_uring(void *ctx)
{
	int res = -1;

	bpf_probe_read_kernel(
		&res, sizeof(res),
		ctx + bpf_core_field_offset(struct trace_event_raw_io_uring_complete___any, res));
	accept_returned(res);
	return 0;
}

static __always_inline void report_never_accepted(struct sock *sk, const struct waiting *waiting)
{
	__u64 key = waiting->listener;
	struct listener *listener = bpf_map_lookup_elem(&accept_listeners, &key);
	struct tcp_accept_event *event;

	stat_add(STAT_SEEN, 1);
	/* taken without a descriptor, e.g. as a fixed file of io_uring */
	if (waiting->taken || (only_chosen && !(listener && wanted(listener->owner.host_pid)))) {
		stat_add(STAT_FILTERED, 1);
		return;
	}
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	if (listener)
		__builtin_memcpy(&event->header, &listener->owner, sizeof(event->header));
	event->kind = TCP_ACCEPT_NEVER_ACCEPTED;
	fill_waited(event, sk, waiting, listener);
	event_submit(event);
}

/* A TCP socket is freed: in a thread's context or in a soft interrupt. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(tcp_accept_destroy, struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct waiting *waiting = bpf_map_lookup_elem(&accept_waiting, &key);

	if (waiting) {
		/* never queued: the handshake failed */
		if (waiting->queued)
			report_never_accepted(sk, waiting);
		bpf_map_delete_elem(&accept_waiting, &key);
		return 0;
	}
	bpf_map_delete_elem(&accept_listeners, &key);
	return 0;
}
