/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writes to connections with a request, and their end: where an answer begins and ends. */
#ifndef UNDERSPAN_REQUEST_ANSWER_BPF_H
#define UNDERSPAN_REQUEST_ANSWER_BPF_H

#include "request/read.bpf.h"

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

enum { REQUEST_ANSWER_BYTES = 256 }; /* most heads of answers are shorter */

/*
 * The head of the answer is in this write of `n` bytes, or a part of it. Returns the number of its
 * bytes that belong to the head.
 */
static __always_inline __u32 request_answer_head(struct request_connection *conn,
						 const struct request_buffer *buffer, __u32 n)
{
	struct request_scan *scan = request_scan_begin();
	__u32 len = n < buffer->len ? n : buffer->len, head = n, first;

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
	/* the rest of most first writes is the body */
	first = len;
	barrier_var(first); /* 5.10 knows the bounds of the compared register alone */
	if (first > REQUEST_ANSWER_BYTES)
		first = REQUEST_ANSWER_BYTES;
	scan->end = 0;
	scan->torn = 1;
	if (!bpf_probe_read_user(scan->head.bytes, first, (void *)buffer->base))
		request_scan_head(first);
	if (!scan->end && len > REQUEST_ANSWER_BYTES) {
		barrier_var(len); /* 5.10 forgets the bounds of a number that was on the stack */
		if (len > REQUEST_HEAD_BYTES)
			len = REQUEST_HEAD_BYTES;
		if (!bpf_probe_read_user(scan->head.bytes, len, (void *)buffer->base))
			request_scan_head(len);
	}
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
