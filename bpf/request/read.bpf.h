/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads of sockets by tracked processes: where a request begins. */
#ifndef UNDERSPAN_REQUEST_READ_BPF_H
#define UNDERSPAN_REQUEST_READ_BPF_H

#include "request/head.bpf.h"

/* ---- the beginning ---- */

/* The waits before the read, and the start of the request. */
static __always_inline void request_set_waits(struct request_connection *conn,
					      struct request_arrival *arrival, __u64 now)
{
	__u64 first = arrival ? arrival->first_byte_ns : 0, accepted = 0;

	conn->accept_queue_ns = conn->client_wait_ns = conn->queue_ns = 0;
	conn->start_ns = now;
	if (conn->n <= 1 && arrival)
		accepted = arrival->accepted_ns;
	if (first <= REQUEST_ARRIVED_UNSEEN || first > now)
		conn->not_measured |= REQUEST_LACK_arrival;
	if (conn->n == 0 || (conn->n == 1 && !(arrival && arrival->established_ns)))
		conn->not_measured |= REQUEST_LACK_accept;
	if (conn->not_measured & REQUEST_LACK_arrival) {
		/* from the end of the accept queue to the read: not known whose wait */
		if (conn->n == 1)
			conn->not_measured |= REQUEST_LACK_accept;
		return;
	}
	if (!accepted) {
		conn->queue_ns = now - first;
		conn->start_ns = first;
		return;
	}
	if (first > accepted)
		conn->client_wait_ns = first - accepted;
	conn->queue_ns = now - (first > accepted ? first : accepted);
	conn->start_ns = accepted;
	if (arrival->established_ns) {
		conn->accept_queue_ns = accepted - arrival->established_ns;
		conn->start_ns = arrival->established_ns;
	}
}

/* How many requests of the listener waited before this one. */
static __always_inline void request_set_depth(struct request_connection *conn,
					      struct request_arrival *arrival)
{
	conn->has_queue_depth = arrival && request_depth_known(arrival, &conn->queue_depth);
	if (arrival)
		arrival->open = 1;
	if (conn->server_port && conn->not_measured & REQUEST_LACK_arrival)
		request_listener_unsure(conn->netns, conn->server_port);
}

static __always_inline struct request_connection *
request_connection_new(__u64 key, const struct request_arrival *arrival)
{
	struct request_connection *conn;

	if (bpf_map_update_elem(&request_connections, &key, &empty_request_connection, BPF_ANY))
		return NULL;
	conn = bpf_map_lookup_elem(&request_connections, &key);
	if (!conn)
		return NULL;
	request_read_addresses(conn, (struct sock *)key);
	/* the first read of a connection that was seen from its accept() on */
	conn->counted = arrival && arrival->accepted_ns;
	return conn;
}

/* Does the thread serve several connections, waiting for all at once? */
static __always_inline bool request_thread_is_loop(struct thread *t,
						   const struct request_connection *conn,
						   const struct request_arrival *arrival)
{
	__u64 polled = t->request.polled_ns;

	if (t->request.open > 1)
		return true;
	if (conn->reader == bpf_get_current_task() && conn->ended_ns && polled > conn->ended_ns)
		return true;
	return arrival && !conn->ended_ns && arrival->accepted_tid == current_tid() &&
	       polled > arrival->accepted_ns;
}

/* The current thread begins to serve a request. `now`: of the read. */
static __always_inline void request_begin(struct request_connection *conn, struct thread *t,
					  struct request_arrival *arrival, __u32 fd,
					  bool at_last_end)
{
	__u64 task = bpf_get_current_task();
	struct request_process *process = request_process_of(current_tgid());
	__u32 open = request_thread_opens(t, bpf_ktime_get_ns());

	t->request.fd = fd;
	conn->model = request_thread_is_loop(t, conn, arrival) ? REQUEST_MODEL_loop
							       : REQUEST_MODEL_thread;
	if (!at_last_end)
		request_snapshot_take(t, &conn->begin);
	conn->read_ns = conn->begin.at_ns;
	conn->worker = conn->reader = task;
	conn->link = REQUEST_LINK_same;
	conn->fd = fd;
	conn->open_requests = open;
	conn->bytes_in = conn->bytes_out = 0;
	conn->request_left = conn->chunks[DIRECTION_OUT].left = 0;
	conn->slow_since_ns = conn->slow_ns = 0;
	conn->status = conn->not_measured = 0;
	conn->answer = ANSWER_NONE;
	conn->framing = conn->line_n = 0;
	conn->gone = 0;
	conn->busy_threads = 0;
	conn->has_queue_depth = 0;
	if (process) {
		conn->busy_threads = process->busy;
		process->read_ns = conn->read_ns;
		if (open == 1)
			__sync_fetch_and_add(&process->busy, 1);
	}
	request_header_set(t, &conn->header);
}

/* A read by a tracked process begins with a request. Global: see request_scan_line(). */
__noinline int request_open(__u64 key, __u32 method, __u32 got)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	struct request_connection *conn = request_connection_of(key);
	struct thread *t = request_current_thread();
	struct request_buffer buffer = {};
	__u64 left = 0;

	if (!conn)
		conn = request_connection_new(key, arrival);
	if (!conn || !t || !request_call_buffer(&buffer)) {
		request_lost();
		return 0;
	}
	request_begin(conn, t, arrival, buffer.fd, false);
	conn->n += conn->counted;
	conn->method = method;
	conn->bytes_in = got;
	conn->head = request_head_keep(key, &buffer, got, method, &left);
	if (!method && got < 8)
		conn->head = HEAD_BEGUN;
	conn->request_left = left;
	request_set_waits(conn, arrival, conn->read_ns);
	request_set_depth(conn, arrival);
	if (conn->family == REQUEST_FAMILY_unix)
		request_unix = 1;
	request_port_note(conn->server_port);
	return 0;
}

/* The bytes that arrive from now on belong to what comes next. */
static __always_inline void request_arrival_taken(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	struct request_arrival unseen = {};
	struct request_connection *conn;

	if (arrival) {
		request_waits_no_more(arrival);
		arrival->first_byte_ns = request_readable(key) ? bpf_ktime_get_ns() : 0;
		return;
	}
	conn = bpf_map_lookup_elem(&request_connections, &key);
	if (!conn || request_readable(key))
		return;
	unseen.netns = conn->netns;
	unseen.port = conn->server_port;
	unseen.open = conn->worker != 0;
	bpf_map_update_elem(&request_arrivals, &key, &unseen, BPF_ANY);
}

/* ---- reads ---- */

/* A process that is not tracked (yet) has read from a socket with the port of a tracked one. */
static __always_inline void request_read_by_others(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (!arrival)
		return;
	if (arrival->waits)
		request_listener_unsure(arrival->netns, arrival->port);
	request_waits_no_more(arrival);
	arrival->first_byte_ns = 0;
}

/* What begins with these bytes? Requests that cannot be followed are counted. */
static __always_inline __u32 request_kind(const char b[REQUEST_START_BYTES], __u32 got,
					  bool *ret_is_request)
{
	__u32 method = request_method_of(b);

	*ret_is_request = method || request_is_uwsgi(b, got);
	if (!method && !__builtin_memcmp(b, "PRI * HTTP/2.0", 14))
		__sync_fetch_and_add(&request_http2, 1);
	return method;
}

/* A TLS handshake begins on an accepted connection. */
static __always_inline void request_count_tls(__u64 key, const char b[REQUEST_START_BYTES])
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (arrival && arrival->accepted_ns) {
		__sync_fetch_and_add(&request_tls, 1);
		arrival->accepted_ns = 0; /* once per connection */
	}
}

/* A tracked process has read `got` bytes. Global: see request_scan_line(). */
__noinline int request_read(__u64 key, __u32 got)
{
	struct request_connection *conn = request_connection_of(key);
	struct request_buffer buffer = {};
	char b[REQUEST_START_BYTES] = {};
	bool is_request = false;
	__u32 method = 0, n;

	if (conn && conn->worker) {
		if (!got) {
			conn->gone = GONE_EOF;
			return 0;
		}
	} else if (!got) {
		return 0;
	}
	if (conn && conn->request_left && (!conn->worker || conn->request_left != ~0ULL)) {
		/* of a body, even of a request that was answered before its end */
		if (conn->request_left != ~0ULL)
			conn->request_left -= got < conn->request_left ? got : conn->request_left;
		if (conn->worker)
			conn->bytes_in += got;
		goto taken;
	}
	if (!request_call_buffer(&buffer))
		goto taken;
	n = got < sizeof(b) ? got : sizeof(b);
	if (bpf_probe_read_user(b, n, (void *)buffer.base))
		goto taken;
	if (!conn || !conn->worker || conn->answer == ANSWER_UNFRAMED)
		method = request_kind(b, got, &is_request);
	if (conn && conn->worker && is_request) {
		request_end(key, REQUEST_END_next_request, REQUEST_OUTCOME_answered,
			    REQUEST_END_AT_LAST_WRITE);
		conn = NULL;
	}
	if (is_request) {
		request_open(key, method, got);
	} else if (conn && conn->worker) {
		conn->bytes_in += got;
		if (conn->head == HEAD_OPEN || conn->head == HEAD_BEGUN)
			request_head_append(key, conn, &buffer, got);
		if (conn->head == HEAD_BEGUN && !request_head_begins(key, conn))
			request_drop(key, conn);
	} else if (request_has_lengths && request_method_may_follow(b, got)) {
		request_open(key, REQUEST_METHOD_none, got);
	} else if (b[0] == 0x16 && b[1] == 3) {
		request_count_tls(key, b);
	}
taken:
	request_arrival_taken(key);
	return 0;
}

#endif
