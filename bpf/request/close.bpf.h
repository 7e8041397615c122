/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of a connection: closed or shut down by the server, or gone.
 *
 * TCP has tracepoints for that (request.bpf.h), unix sockets have none. A thread that has read a
 * request from a unix socket watches the socket: when it leaves a CPU, reads from a client or ends,
 * one load tells whether it has closed the socket since. The sums are taken there. A program that
 * user space runs once a second makes the row, and finds sockets closed by other threads. Processes
 * that serve no unix socket pay nothing.
 */
#ifndef UNDERSPAN_REQUEST_CLOSE_BPF_H
#define UNDERSPAN_REQUEST_CLOSE_BPF_H

#include "request/report.bpf.h"

enum {
	REQUEST_SIGNAL_GROUP_EXIT = 4, /* include/linux/sched/signal.h */
	REQUEST_SEND_SHUTDOWN = 2,     /* include/net/sock.h */
	REQUEST_SHUTDOWN_BOTH = 3,
	REQUEST_ECONNRESET = 104,
};

enum request_shut { REQUEST_LINGERS = 1, REQUEST_IS_RESET };

/*
 * Has the server shut down its direction of a TCP connection? What it reads after that, it drops: a
 * lingering close, also when the client has closed meanwhile. A reset by the client sets the bit,
 * too: what came before it is read and served, unless request_connection.shut. A client that closes
 * sets both bits of the server's unix socket. `sk` has a type known to the verifier: plain loads.
 */
static __always_inline __u32 request_shut(const struct sock *sk)
{
	if (sk->__sk_common.skc_family == AF_UNIX || !(sk->sk_shutdown & REQUEST_SEND_SHUTDOWN))
		return 0;
	return sk->__sk_common.skc_state == REQUEST_TCP_CLOSE && sk->sk_err ? REQUEST_IS_RESET
									    : REQUEST_LINGERS;
}

/* The agent stops, or the governor has taken the tracker out: no rows, since no sums are kept. */
static __always_inline bool request_is_over(void)
{
	return stopping || request_out;
}

/* Ends of processes that served unix sockets, by host pid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} request_process_ends SEC(".maps");

/* An answer whose end need not be seen: the connection's end or the next request tells it. */
static __always_inline bool request_answer_open_ended(const struct request_connection *conn)
{
	return conn->answer == ANSWER_UNFRAMED ||
	       (conn->answer == ANSWER_CHUNKED && conn->chunks[DIRECTION_OUT].state == CHUNK_BAD);
}

/* Is the answer complete, if the connection ends now? */
static __always_inline bool request_close_completes(const struct request_connection *conn)
{
	if (request_answer_open_ended(conn)) /* perhaps without a status that could be read */
		return conn->gone != GONE_WRITE;
	return conn->status && !conn->gone;
}

/*
 * Does the client wait for the end of the connection, as nothing else ends the answer? Not if it
 * has ended its own direction before: it may be gone. `key`: a TCP socket, before it changes state.
 */
static __always_inline bool request_close_awaited(__u64 key, const struct request_connection *conn)
{
	return conn->to_close && !conn->gone && conn->family != REQUEST_FAMILY_unix &&
	       BPF_CORE_READ((struct sock *)key, __sk_common.skc_state) == REQUEST_TCP_ESTABLISHED;
}

/* Closed or shut down by the server, or gone. Global: see request_scan_line(). */
__noinline int request_closed(__u64 key)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	__u32 flags;

	if (!conn || !conn->worker)
		return 0;
	if (conn->head == HEAD_BEGUN) {
		request_drop(key, conn);
		return 0;
	}
	flags = conn->closed_ns ? REQUEST_END_AT_LAST_WRITE : 0;
	if (request_close_completes(conn))
		request_end(key, REQUEST_END_close, REQUEST_OUTCOME_answered,
			    request_close_awaited(key, conn) ? REQUEST_END_AT_CLOSE
							     : REQUEST_END_AT_LAST_WRITE);
	else if (conn->gone)
		request_end(key, REQUEST_END_close, REQUEST_OUTCOME_client_aborted, flags);
	else
		request_end(key, REQUEST_END_close, REQUEST_OUTCOME_no_answer, flags);
	return 0;
}

/*
 * The current thread ends with open requests. If its process ends, nothing but this entry knows of
 * the sums when the sockets are closed.
 */
static __noinline int request_thread_killed(struct task_struct *task, struct thread *t)
{
	__u64 key = bpf_get_current_task();
	__u32 flags = BPF_CORE_READ(task, signal, flags), tgid = current_tgid();
	struct request_process *process = bpf_map_lookup_elem(&request_processes, &tgid);
	struct request_killed *killed;

	if (!(flags & REQUEST_SIGNAL_GROUP_EXIT))
		return 0;
	bpf_map_update_elem(&request_killed, &key, &empty_request_killed, BPF_ANY);
	killed = bpf_map_lookup_elem(&request_killed, &key);
	if (!killed)
		return 0;
	request_snapshot_take(t, &killed->sums);
	killed->polled_ns = t->request.polled_ns;
	killed->worked_ns = t->request.woke_ns;
	if (process && process->pool_ns > killed->worked_ns)
		killed->worked_ns = process->pool_ns;
	killed->host_tid = current_tid();
	/* the first thread to end may have removed what is known of the process */
	killed->lacks = t->request.lacks;
	killed->end_by = request_end_of(task);
	return 0;
}

/*
 * The current thread runs a new program, in a new record. A request that it has open goes on, on a
 * descriptor that stays open: its time until now is not known any more.
 */
static __noinline int request_thread_renewed(struct thread *t)
{
	struct sock *sk = fd_to_sock(t->request.fd);
	__u64 key = (__u64)sk;
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);

	if (conn && conn->worker == bpf_get_current_task())
		conn->begin.at_ns = 0;
	request_thread_busy(current_tgid(), -1);
	return 0;
}

/*
 * Before the current thread begins the request of the connection `key`: has it closed the socket of
 * its last one, whose client has left or waits for the connection's end? The kernel closes the
 * connection later, with the descriptors of the children that the handler has forked (a pool of
 * processes), which the thread does not wait for. Global: for a separate stack.
 */
__noinline int request_thread_leaves(__u64 key)
{
	struct thread *t = thread_find(current_task());
	struct request_connection *conn;
	__u64 last;

	if (!t || !t->request.open || t->request.read_key == key)
		return 0;
	last = t->request.read_key;
	conn = bpf_map_lookup_elem(&request_connections, &last);
	if (!conn || conn->worker != bpf_get_current_task() || conn->reader != conn->worker ||
	    !(conn->gone || conn->answer == ANSWER_UNFRAMED) || (__u64)fd_to_sock(conn->fd) == last)
		return 0;
	conn->open_requests = request_most_open(&t->request, conn->begin.at_ns,
						conn->open_requests);
	if (conn->gone) {
		request_end(last, REQUEST_END_close, REQUEST_OUTCOME_client_aborted,
			    REQUEST_END_AT_LAST_WRITE);
	} else {
		request_thread_closes(last, conn, NULL, t);
		conn->reader = 0;
	}
	return 0;
}

/* ---- unix sockets ---- */

/*
 * Has the server closed or shut down the socket? A client that closes sets both bits of the
 * server's sk_shutdown as well.
 */
static __always_inline bool request_unix_ended(__u64 key, const struct request_connection *conn)
{
	__u32 shut;

	if (request_inode(key) != conn->inode)
		return true;
	shut = BPF_CORE_READ_BITFIELD_PROBED((struct sock *)key, sk_shutdown);
	return (shut & REQUEST_SHUTDOWN_BOTH) == REQUEST_SEND_SHUTDOWN;
}

/*
 * The current thread sees that the client is gone. The sums of this moment count if a different
 * thread closes the socket.
 */
static __noinline int request_unix_left(__u64 key, struct request_connection *conn)
{
	struct thread *t = thread_find(current_task());

	if (!t)
		return 0;
	request_unix_watch(t, key, true);
	if (conn->worker == bpf_get_current_task() && conn->begin.at_ns &&
	    (conn->gone == GONE_WRITE || conn->answer == ANSWER_NONE))
		request_snapshot_take(t, &conn->last);
	return 0;
}

static __always_inline void request_client_gone(__u64 key, struct request_connection *conn,
						__u8 gone)
{
	conn->gone = gone;
	if (conn->family == REQUEST_FAMILY_unix)
		request_unix_left(key, conn);
}

/* A read failed: the client closed with bytes of the answer unread. */
static __noinline int request_unix_reset(__u64 key)
{
	struct request_connection *conn = request_connection_of(key);

	if (conn && conn->worker && conn->family == REQUEST_FAMILY_unix)
		request_client_gone(key, conn, GONE_WRITE);
	return 0;
}

/* An entry of a unix socket that is about to be deleted, or of which the address is used again. */
static __always_inline void request_unix_gone(__u64 key)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);

	if (conn && conn->worker && conn->family == REQUEST_FAMILY_unix)
		request_closed(key);
}

/*
 * An arrival at a unix socket of a server that is closed: the socket now at its address may be a
 * client's, whose answers are no requests.
 */
static __noinline int request_unix_arrived_other(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (arrival && arrival->copied_seq != (__u32)request_inode(key))
		bpf_map_delete_elem(&request_arrivals, &key);
	return 0;
}

/* The current thread has closed the socket of an open request, or ends with its process. */
static __always_inline void request_unix_closed(__u64 key, struct thread *t, bool process_ends)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	__u64 now = bpf_ktime_get_ns();

	if (!conn || !conn->worker || conn->closed_ns || conn->family != REQUEST_FAMILY_unix ||
	    (!process_ends && request_inode(key) == conn->inode))
		return;
	if (conn->worker == bpf_get_current_task() && conn->begin.at_ns) {
		request_thread_ends(key, conn, t);
		if (conn->model == REQUEST_MODEL_loop && t->request.woke_ns > conn->begin.at_ns)
			conn->not_measured |= REQUEST_LACK_work_elsewhere;
		if (!request_close_completes(conn) || (conn->to_close && !conn->gone))
			request_snapshot_take(t, &conn->last);
	}
	conn->closed_ns = now;
	request_thread_closes(key, conn, NULL, NULL);
	conn->reader = 0;
}

/*
 * The current thread `t` watches unix sockets: which has it closed? Sockets that another thread has
 * closed are found as well.
 */
static __noinline int request_unix_look(struct thread *t, bool process_ends)
{
	struct request_sums *sums = &t->request;
	void *socket;
	__u64 key;

	for (int i = 0; i < REQUEST_WATCHED; i++) {
		key = sums->watched[i].sk;
		if (!key)
			continue;
		socket = BPF_CORE_READ((struct sock *)key, sk_socket);
		if (!process_ends && (__u64)socket == sums->watched[i].socket)
			continue;
		sums->watched[i].sk = 0;
		sums->watches--;
		request_unix_closed(key, t, process_ends);
	}
	return 0;
}

/*
 * Before the current thread may begin a request: a thread that closes a socket and takes the next
 * connection from a queue has not left its CPU in between.
 */
static __always_inline void request_unix_look_first(void)
{
	struct thread *t = request_unix ? thread_find(current_task()) : NULL;

	if (t && t->request.watches)
		request_unix_look(t, false);
}

/* The thread ends; the files of a process are closed after its threads have ended. */
static __always_inline void request_unix_thread_ends(struct task_struct *task, struct thread *t)
{
	__u32 flags = BPF_CORE_READ(task, signal, flags);

	if (t->request.watches)
		request_unix_look(t, flags & REQUEST_SIGNAL_GROUP_EXIT);
}

static __always_inline void request_unix_process_ends(__u32 tgid)
{
	__u64 now = bpf_ktime_get_ns();

	if (request_unix && bpf_map_lookup_elem(&request_processes, &tgid))
		bpf_map_update_elem(&request_process_ends, &tgid, &now, BPF_ANY);
}

/*
 * The memory of a closed unix socket may belong to something else by now; it is only compared.
 * `at`: a connection, perhaps of a closed unix socket.
 */
static long request_sweep_connection(void *map, const __u64 *at, void *value, void *ctx)
{
	struct request_connection *conn;
	__u64 key = *at, *ended;
	bool ends;
	__u32 tgid;

	conn = bpf_map_lookup_elem(&request_connections, &key);
	if (!conn || conn->family != REQUEST_FAMILY_unix)
		return 0;
	if (!conn->closed_ns && !request_unix_ended(key, conn))
		return 0;
	tgid = conn->header.host_pid;
	ended = bpf_map_lookup_elem(&request_process_ends, &tgid);
	ends = ended && *ended > conn->read_ns;
	if (!conn->closed_ns && ends)
		conn->closed_ns = *ended;
	request_unix_gone(key);
	if (ends) /* created anew for the row */
		bpf_map_delete_elem(&request_processes, &tgid);
	if (request_inode(key) != conn->inode) {
		request_connection_delete(key);
		bpf_map_delete_elem(&request_arrivals, &key);
	}
	return 0;
}

/* The same for arrivals, of which most have no connection. */
static long request_sweep_arrival(void *map, const __u64 *at, void *value, void *ctx)
{
	__u64 key = *at;
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	__u16 family;

	if (!arrival || arrival->port)
		return 0;
	family = BPF_CORE_READ((struct sock *)key, __sk_common.skc_family);
	if (family == AF_INET || family == AF_INET6 ||
	    (family == AF_UNIX && BPF_CORE_READ((struct sock *)key, sk_socket)))
		return 0;
	bpf_map_delete_elem(&request_arrivals, &key);
	return 0;
}

/* Run by user space, never attached. bpf_for_each_map_elem(): 5.13; loaded since 6.3. */
SEC("?raw_tp")
int request_sweep(void *ctx)
{
	if (!request_is_over())
		bpf_for_each_map_elem(&request_connections, request_sweep_connection, NULL, 0);
	return 0;
}

SEC("?raw_tp")
int request_sweep_arrivals(void *ctx)
{
	if (!request_is_over())
		bpf_for_each_map_elem(&request_arrivals, request_sweep_arrival, NULL, 0);
	return 0;
}

#endif
