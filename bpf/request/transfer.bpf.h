/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads and writes of sockets by tracked processes: where requests and their answers begin and end.
 */
#ifndef UNDERSPAN_REQUEST_TRANSFER_BPF_H
#define UNDERSPAN_REQUEST_TRANSFER_BPF_H

#include "request/report.bpf.h"

/* ---- the request's head ---- */

static __always_inline bool request_has_body(__u32 method)
{
	return method == REQUEST_METHOD_POST || method == REQUEST_METHOD_PUT ||
	       method == REQUEST_METHOD_PATCH || method == REQUEST_METHOD_DELETE;
}

/*
 * Keeps the first read of a request as its head. Returns enum request_head_state; *ret_left: bytes
 * of the body that follow. `got`: bytes read.
 */
static __always_inline __u32 request_head_keep(__u64 key, const struct request_buffer *buffer,
					       __u32 got, __u32 method, __u64 *ret_left)
{
	struct request_scan *scan = request_scan_begin();
	__u32 n = got < buffer->len ? got : buffer->len, state = HEAD_OPEN, tail_n;

	if (!scan)
		return HEAD_SPLIT;
	if (n > REQUEST_HEAD_BYTES)
		n = REQUEST_HEAD_BYTES;
	scan->head.n = n;
	scan->head.tail_n = 0;
	scan->head.gap = 0;
	if (bpf_probe_read_user(scan->head.bytes, n, (void *)buffer->base))
		goto split;
	if (got > n && got <= buffer->len) {
		tail_n = got - n;
		if (tail_n > REQUEST_TAIL_BYTES) {
			scan->head.gap = tail_n - REQUEST_TAIL_BYTES;
			tail_n = REQUEST_TAIL_BYTES;
		}
		if (!bpf_probe_read_user(scan->tail.bytes, tail_n,
					 (void *)(buffer->base + got - tail_n)) &&
		    !bpf_map_update_elem(&request_tails, &key, &scan->tail, BPF_ANY))
			scan->head.tail_n = tail_n;
	}
	if (request_has_body(method)) {
		scan->has_length = scan->chunked = 0;
		request_scan_head(n);
		if (scan->end) {
			state = HEAD_DONE;
			if (scan->has_length && scan->length > got - scan->end)
				*ret_left = scan->length - (got - scan->end);
			else if (scan->chunked)
				*ret_left = ~0ULL;
		}
	} else {
		__u32 end = 0;

		bpf_probe_read_user(&end, sizeof(end), (void *)(buffer->base + got - sizeof(end)));
		if (got <= buffer->len && end == 0x0a0d0a0d)
			state = HEAD_DONE;
	}
	if (bpf_map_update_elem(&request_heads, &key, &scan->head, BPF_ANY))
		goto split;
	request_scan_end(scan);
	return state;
split:
	request_scan_end(scan);
	return HEAD_SPLIT;
}

/* A further piece of the head. */
static __always_inline void request_head_append(__u64 key, struct request_connection *conn,
						const struct request_buffer *buffer, __u32 got)
{
	enum { PIECE = 256, PIECES = 4 };
	struct request_head *head = bpf_map_lookup_elem(&request_heads, &key);
	__u32 left = got < buffer->len ? got : buffer->len, at, n, end = 0;
	__u64 from = buffer->base;

	if (!request_has_lengths || !head || head->tail_n)
		goto split;
	at = head->n;
	for (int i = 0; i < PIECES && left; i++) {
		n = left < PIECE ? left : PIECE;
		if (at > REQUEST_HEAD_BYTES - PIECE ||
		    bpf_probe_read_user(head->bytes + at, n, (void *)from))
			goto split;
		at += n;
		from += n;
		left -= n;
	}
	head->n = at;
	if (left)
		goto split;
	if (at < 4 || at > REQUEST_HEAD_BYTES)
		return;
	bpf_probe_read_kernel(&end, sizeof(end), head->bytes + at - 4);
	if (end != 0x0a0d0a0d)
		return;
	if (conn->head == HEAD_OPEN)
		conn->head = HEAD_DONE;
	/* its length is not read: all that follows until the answer is taken for the body */
	if (request_has_body(conn->method))
		conn->request_left = ~0ULL;
	return;
split:
	if (conn->head == HEAD_OPEN)
		conn->head = HEAD_SPLIT;
}

/* The first bytes were too few. False: they were no request's. */
static __always_inline bool request_head_begins(__u64 key, struct request_connection *conn)
{
	struct request_head *head = bpf_map_lookup_elem(&request_heads, &key);
	union {
		char b[REQUEST_START_BYTES];
		__u64 words[2];
	} start = {};
	__u32 n;

	if (!head)
		return false;
	n = head->n;
	bpf_probe_read_kernel(start.b, sizeof(start.b), head->bytes);
	/* behind the head is what the memory had before */
	if (n < 8)
		start.words[0] &= (1ULL << 8 * n) - 1;
	if (n <= 8)
		start.words[1] = 0;
	else if (n < 16)
		start.words[1] &= (1ULL << 8 * (n - 8)) - 1;
	conn->method = request_method_of(start.b);
	if (conn->method) {
		conn->head = HEAD_OPEN;
		return true;
	}
	return n < 8 ? request_method_may_follow(start.b, n) : n == 8 && start.b[0] == 'O';
}

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
	conn->request_left = conn->answer_left = 0;
	conn->slow_since_ns = conn->slow_ns = 0;
	conn->status = conn->not_measured = 0;
	conn->answer = ANSWER_NONE;
	conn->gone = 0;
	conn->busy_threads = 0;
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
	if (conn->family == REQUEST_FAMILY_unix)
		request_unix = 1;
	request_port_note(conn->server_port);
	return 0;
}

/* The bytes that arrive from now on belong to what comes next. */
static __always_inline void request_arrival_taken(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (arrival) {
		arrival->first_byte_ns = request_readable(key) ? bpf_ktime_get_ns() : 0;
		return;
	}
	if (!request_readable(key) && bpf_map_lookup_elem(&request_connections, &key))
		bpf_map_update_elem(&request_arrivals, &key, &empty_arrival, BPF_ANY);
}

/* ---- reads ---- */

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

/* ---- writes ---- */

/*
 * The current thread answers what another has read. Where did its work begin? After its last
 * answer, if that was later than the read, or at its first wake-up since the read.
 */
static __always_inline void request_pool_begins(struct request_connection *conn, struct thread *t)
{
	const struct request_snapshot *begin = NULL;

	conn->worker = bpf_get_current_task();
	conn->model = REQUEST_MODEL_pool;
	conn->link = REQUEST_LINK_write;
	request_header_set(t, &conn->header);
	if (t->request.answered.at_ns >= conn->read_ns)
		begin = &t->request.answered;
	else if (t->request.woken[0].at_ns >= conn->read_ns)
		begin = &t->request.woken[0];
	else if (t->request.woken[1].at_ns >= conn->read_ns)
		begin = &t->request.woken[1];
	if (begin)
		conn->begin = *begin;
	else
		conn->begin.at_ns = 0; /* not known */
}

/*
 * The head of the answer is in this write of `n` bytes, or a part of it. Returns the number of its
 * bytes that belong to the head.
 */
static __always_inline __u32 request_answer_head(struct request_connection *conn,
						 const struct request_buffer *buffer, __u32 n)
{
	struct request_scan *scan = request_scan_begin();
	__u32 len = n < buffer->len ? n : buffer->len, head = n;

	if (!scan) {
		conn->answer = ANSWER_UNFRAMED;
		return n;
	}
	if (len > REQUEST_HEAD_BYTES)
		len = REQUEST_HEAD_BYTES;
	/* what earlier writes of the head said is kept in the connection */
	scan->has_length = conn->answer_left != 0;
	scan->length = conn->answer_left - 1;
	scan->chunked = conn->chunked;
	if (bpf_probe_read_user(scan->head.bytes, len, (void *)buffer->base))
		scan->end = 0, scan->torn = 1;
	else
		request_scan_head(len);
	if (scan->end) {
		head = scan->end;
		conn->answer = scan->chunked	  ? ANSWER_CHUNKED
			       : scan->has_length ? ANSWER_LENGTH
						  : ANSWER_UNFRAMED;
		conn->answer_left = scan->length;
		if (conn->method == REQUEST_METHOD_HEAD || conn->status == 204 ||
		    conn->status == 304) {
			conn->answer = ANSWER_LENGTH;
			conn->answer_left = 0;
		}
	} else if (scan->torn || n > len) {
		conn->answer = ANSWER_UNFRAMED;
	} else {
		conn->answer_left = scan->has_length ? scan->length + 1 : 0;
		conn->chunked = scan->chunked;
	}
	request_scan_end(scan);
	return head;
}

/* The beginning of an answer. False: nothing to be followed. */
static __always_inline bool request_answer_begins(__u64 key, struct request_connection *conn,
						  const struct request_buffer *buffer, __u32 n)
{
	char b[REQUEST_START_BYTES] = {};
	__u32 status;

	if (n < 12 || bpf_probe_read_user(b, 12, (void *)buffer->base))
		status = 0;
	else
		status = request_status_of(b);
	if (status >= 100 && status < 200 && status != 101)
		return false; /* the answer is still to come */
	conn->status = status;
	conn->answer = status ? ANSWER_HEAD : ANSWER_UNFRAMED;
	conn->answer_left = 0;
	conn->chunked = 0;
	return true;
}

/* Returns whether the write completes the answer. */
static __always_inline bool request_answer_goes_on(struct request_connection *conn,
						   const struct request_buffer *buffer, __u32 n)
{
	__u32 head = 0;

	if (conn->answer == ANSWER_HEAD)
		head = request_answer_head(conn, buffer, n);
	if (conn->answer == ANSWER_LENGTH) {
		if (n - head > conn->answer_left) /* the next answer is in the same write */
			conn->not_measured |= REQUEST_LACK_pipelined;
		conn->answer_left -= n - head < conn->answer_left ? n - head : conn->answer_left;
		return conn->answer_left == 0;
	}
	return conn->answer == ANSWER_CHUNKED && request_ends_chunked(buffer, n);
}

/* An answer without a read: the second of two requests that were read at once. */
static __always_inline bool request_open_pipelined(struct request_connection *conn,
						   struct thread *t,
						   const struct request_buffer *buffer)
{
	char b[REQUEST_START_BYTES] = {};

	/* the sums of the last answer's end are those of the thread that wrote it */
	if (!conn->begin.at_ns || conn->reader != bpf_get_current_task() ||
	    bpf_probe_read_user(b, 12, (void *)buffer->base) || !request_status_of(b))
		return false;
	request_begin(conn, t, NULL, buffer->fd, true);
	conn->n += conn->counted;
	conn->method = REQUEST_METHOD_none;
	conn->head = HEAD_DONE;
	conn->accept_queue_ns = conn->client_wait_ns = conn->queue_ns = 0;
	conn->start_ns = conn->read_ns;
	conn->not_measured |= REQUEST_LACK_pipelined | REQUEST_LACK_arrival;
	return true;
}

static __always_inline void request_write_taken(struct request_connection *conn,
						const struct request_buffer *buffer, int ret,
						__u64 now)
{
	if (conn->slow_since_ns && ret > 0) {
		conn->slow_ns += now - conn->slow_since_ns;
		conn->slow_since_ns = 0;
	}
	/* the rest is written when the socket has room again */
	if (!conn->slow_since_ns && !buffer->vec && (ret < 0 || (__u32)ret < buffer->len))
		conn->slow_since_ns = now;
}

enum { REQUEST_EAGAIN = 11 };

/* A write to a known connection ended. Global: see request_scan_line(). */
__noinline int request_wrote(__u64 key, int ret)
{
	struct request_connection *conn = request_connection_of(key);
	struct request_buffer buffer = {};
	struct thread *t;
	__u64 now = bpf_ktime_get_ns();

	if (!conn)
		return 0;
	request_call_buffer(&buffer);
	if (ret <= 0) {
		if (!conn->worker)
			return 0;
		if (ret == -REQUEST_EAGAIN)
			request_write_taken(conn, &buffer, ret, now);
		else
			conn->gone = GONE_WRITE;
		return 0;
	}
	t = request_current_thread();
	if (!t || (!conn->worker && !request_open_pipelined(conn, t, &buffer)))
		return 0;
	request_write_taken(conn, &buffer, ret, now);
	if (conn->worker != bpf_get_current_task() && conn->answer == ANSWER_NONE &&
	    conn->link == REQUEST_LINK_same)
		request_pool_begins(conn, t);
	conn->bytes_out += ret;
	if (conn->answer == ANSWER_NONE && !request_answer_begins(key, conn, &buffer, ret)) {
		conn->bytes_out -= ret;
		return 0;
	}
	if (conn->status == 101) {
		__sync_fetch_and_add(&request_upgraded, 1);
		request_end(key, REQUEST_END_upgrade, REQUEST_OUTCOME_upgraded, 0);
		return 0;
	}
	if (request_answer_goes_on(conn, &buffer, ret)) {
		request_end(key,
			    conn->answer == ANSWER_CHUNKED ? REQUEST_END_chunked
							   : REQUEST_END_length,
			    REQUEST_OUTCOME_answered, 0);
		return 0;
	}
	if (conn->worker == bpf_get_current_task() && conn->begin.at_ns)
		request_snapshot_take(t, &conn->last);
	else
		conn->last.at_ns = 0;
	return 0;
}

/* ---- the end of a connection ---- */

/* Closed or shut down by the server, or gone. Global: see request_scan_line(). */
__noinline int request_closed(__u64 key)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);

	if (!conn || !conn->worker)
		return 0;
	if (conn->head == HEAD_BEGUN) {
		request_drop(key, conn);
		return 0;
	}
	if (conn->status &&
	    (!conn->gone || (conn->answer == ANSWER_UNFRAMED && conn->gone == GONE_EOF)))
		request_end(key, REQUEST_END_close, REQUEST_OUTCOME_answered,
			    REQUEST_END_AT_LAST_WRITE);
	else if (conn->gone)
		request_end(key, REQUEST_END_close, REQUEST_OUTCOME_client_aborted, 0);
	else
		request_end(key, REQUEST_END_close, REQUEST_OUTCOME_no_answer, 0);
	return 0;
}

#endif
