/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writes to connections with a request: the pieces of a write, and the answers in it. */
#ifndef UNDERSPAN_REQUEST_WRITE_BPF_H
#define UNDERSPAN_REQUEST_WRITE_BPF_H

#include "request/answer.bpf.h"
#include "request/unsent.bpf.h"

/* Does the connection change to a different protocol here? */
static __always_inline bool request_is_tunnel(const struct request_connection *conn)
{
	return conn->status == 101 || (conn->method == REQUEST_METHOD_CONNECT &&
				       conn->status >= 200 && conn->status < 300);
}

/* The present piece of the write is empty. False: no further piece. */
static __always_inline bool request_next_piece(struct request_connection *conn,
					       const struct request_buffer *buffer)
{
	__u64 at = ++conn->pieces;
	struct user_iovec piece;

	if (!buffer->vec || at >= buffer->n ||
	    bpf_probe_read_user(&piece, sizeof(piece), (void *)buffer->vec + at * sizeof(piece)))
		return false;
	conn->rest_base = piece.base;
	conn->rest_len = piece.len;
	return true;
}

/* How many bytes of the write's rest are in the present piece, which is not an empty one. */
static __always_inline __u32 request_piece_n(struct request_connection *conn,
					     const struct request_buffer *buffer)
{
	if (!conn->rest_len)
		request_next_piece(conn, buffer);
	return conn->rest < conn->rest_len ? conn->rest : conn->rest_len;
}

/* Takes a step in the rest of a write. Returns whether an answer ends there. */
static __always_inline bool request_answer_goes_on(__u64 key, struct request_connection *conn,
						   const struct request_buffer *buffer)
{
	__u64 n;

	if (!conn->rest_len && conn->answer != ANSWER_LENGTH && conn->answer != ANSWER_UNFRAMED) {
		if (!request_next_piece(conn, buffer)) {
			/* sendfile(), splice(): the bytes are not in the process's memory */
			if (conn->answer <= ANSWER_START)
				__sync_fetch_and_add(&request_unreadable, 1);
			conn->answer = ANSWER_UNFRAMED;
		}
		return false;
	}
	n = conn->rest < conn->rest_len ? conn->rest : conn->rest_len;
	n = (__u32)request_answer_step(key, conn->rest_base, n, conn->rest);
	conn->rest -= n < conn->rest ? n : conn->rest;
	/* the step may have taken more than the present piece, which is then empty */
	n = n < conn->rest_len ? n : conn->rest_len;
	conn->rest_base += n;
	conn->rest_len -= n;
	return conn->answer >= ANSWER_ENDED || request_is_tunnel(conn);
}

/*
 * Most writes of a body with a Content-Length go no further than that: taken without a step.
 * Returns whether the answer ends there.
 */
static __always_inline bool request_length_goes_on(struct request_connection *conn)
{
	struct request_chunks *body = &conn->chunks[DIRECTION_OUT];

	if (conn->answer != ANSWER_LENGTH || conn->rest > body->left)
		return false;
	body->left -= conn->rest;
	conn->bytes_out += conn->rest;
	conn->answer_body = 1;
	conn->rest = 0;
	if (!body->left)
		conn->answer = ANSWER_ENDED;
	return !body->left;
}

/* A write has more pieces than the limit. Returns whether the write ends the answer. */
static __always_inline bool request_answer_skips(__u64 key, struct request_connection *conn,
						 __u32 ret, __u32 left)
{
	conn->bytes_out += left;
	if (conn->answer != ANSWER_CHUNKED) {
		conn->answer = left ? ANSWER_UNFRAMED : conn->answer;
		return false;
	}
	if (left)
		conn->chunks[DIRECTION_OUT].state = CHUNK_BAD;
	return conn->chunks[DIRECTION_OUT].state == CHUNK_BAD && request_ends_chunked(key, ret);
}

/* `t`: the present thread. Its waits for other requests and for a CPU are not for the client. */
static __always_inline void request_write_taken(struct request_connection *conn,
						const struct request_buffer *buffer,
						const struct thread *t, int ret)
{
	__u64 await = conn->worker == bpf_get_current_task() ? t->request.parts[REQUEST_await] : 0;

	if (conn->slow_since_ns && ret > 0) {
		conn->slow_ns += bpf_ktime_get_ns() - conn->slow_since_ns;
		conn->slow_await_ns += await;
		conn->slow_since_ns = 0;
	}
	/* the rest is written when the socket has room again */
	if (!conn->slow_since_ns && !buffer->vec && (ret < 0 || (__u32)ret < buffer->len)) {
		conn->slow_since_ns = bpf_ktime_get_ns();
		conn->slow_await_ns -= await;
	}
}

enum { REQUEST_EAGAIN = 11 };

static __always_inline void request_write_failed(__u64 key, struct request_connection *conn,
						 const struct request_buffer *buffer, int ret)
{
	struct thread *t;

	if (!conn->worker)
		return;
	t = ret == -REQUEST_EAGAIN ? thread_find(current_task()) : NULL;
	if (t)
		request_write_taken(conn, buffer, t, ret);
	else if (ret != -REQUEST_EAGAIN)
		request_client_gone(key, conn, GONE_WRITE);
}

/* An answer has been written. `unsent`: enum request_lack. */
static __always_inline void request_answered(__u64 key, struct request_connection *conn,
					     __u16 unsent)
{
	conn->not_measured |= unsent;
	if (request_is_tunnel(conn)) {
		__sync_fetch_and_add(conn->status == 101 ? &request_upgraded : &request_tunnels, 1);
		request_end(key, REQUEST_END_upgrade, REQUEST_OUTCOME_upgraded, 0);
		conn->body = BODY_FOREIGN;
	} else {
		request_end(key,
			    conn->answer == ANSWER_ENDED ? REQUEST_END_length : REQUEST_END_chunked,
			    REQUEST_OUTCOME_answered, 0);
	}
}

enum { REQUEST_STEPS = 16, REQUEST_STEPS_TIMES = 32, REQUEST_STEPS_LAST = 1 << 16 };

/*
 * The write of the thread `t` goes on: up to REQUEST_STEPS steps. Returns true if further answers
 * may follow in the rest. `unsent`: enum request_lack, and REQUEST_STEPS_LAST.
 */
static __always_inline int request_write_steps(__u64 key, struct request_connection *conn,
					       const struct request_buffer *buffer,
					       struct thread *t, int ret, __u32 unsent)
{
	__u32 n;

	for (int i = 0; i < REQUEST_STEPS && conn->rest; i++) {
		if (!request_answer_goes_on(key, conn, buffer))
			continue;
		request_answered(key, conn, unsent);
		/* does the next answer follow in the same write? */
		n = conn->rest ? request_piece_n(conn, buffer) : 0;
		if (!request_open_pipelined(key, conn->rest_base, n, buffer->fd))
			return false;
	}
	if (conn->rest && conn->not_measured & REQUEST_LACK_pipelined) {
		if (!(unsent & REQUEST_STEPS_LAST))
			return true;
		__sync_fetch_and_add(&request_pipelined, 1);
		request_drop(key, conn);
		return false;
	}
	if (request_answer_skips(key, conn, ret, conn->rest)) {
		request_answered(key, conn, unsent);
		return false;
	}
	if (conn->worker == bpf_get_current_task() && conn->begin.at_ns) {
		request_snapshot_take(t, &conn->last);
		conn->wrote_ns = conn->last.at_ns;
		/* the reader may write the rest: the thread's next work begins here, or later */
		if (conn->link == REQUEST_LINK_write)
			t->request.answered = conn->last;
		return false;
	}
	conn->wrote_ns = bpf_ktime_get_ns();
	if (conn->link != REQUEST_LINK_write) /* the reader writes the rest of a pool's answer */
		conn->last.at_ns = 0;
	return false;
}

/*
 * Further steps of a write that request_wrote_begin() has begun. Returns the same. Global: see
 * request_scan_line().
 */
__noinline int request_wrote_more(__u64 key, int ret, __u32 unsent)
{
	struct request_connection *conn = request_connection_of(key);
	struct thread *t = request_current_thread();
	struct request_buffer buffer = {};

	if (!conn || !t)
		return false;
	request_call_buffer(&buffer);
	return request_write_steps(key, conn, &buffer, t, ret, unsent);
}

/*
 * A write to a known connection ended. `unsent`: enum request_lack, if the answer ends with it.
 * Returns true if further answers may follow: request_wrote_more(). Global: see
 * request_scan_line().
 */
__noinline int request_wrote_begin(__u64 key, int ret, __u32 unsent)
{
	struct request_connection *conn = request_connection_of(key);
	struct request_buffer buffer = {};
	struct thread *t;
	__u32 n;

	if (!conn) {
		request_wrote_unread(key, ret);
		return false;
	}
	request_call_buffer(&buffer);
	if (!ret) /* nothing was to be written, as twisted does before it closes */
		return false;
	if (ret < 0) {
		request_write_failed(key, conn, &buffer, ret);
		return false;
	}
	conn->rest_base = buffer.base;
	conn->rest_len = buffer.len;
	conn->rest = ret;
	conn->pieces = 0;
	n = conn->worker ? 0 : request_piece_n(conn, &buffer);
	if (!conn->worker && !request_open_pipelined(key, conn->rest_base, n, buffer.fd))
		return false;
	t = request_current_thread();
	if (!t)
		return false;
	if (conn->head == HEAD_BEGUN) { /* the answer shows a different protocol */
		request_drop(key, conn);
		request_not_begun(key, START_NONE);
		return false;
	}
	request_write_taken(conn, &buffer, t, ret);
	if (!conn->head_ended && conn->answer == ANSWER_NONE) {
		/* the remaining head and body are not parsed */
		conn->framing = conn->line_n = 0;
		conn->body = BODY_UNKNOWN;
	}
	if (conn->worker != bpf_get_current_task() && conn->answer == ANSWER_NONE &&
	    conn->link == REQUEST_LINK_same)
		request_pool_begins(conn, t);
	else if (conn->answer == ANSWER_NONE && conn->link == REQUEST_LINK_same &&
		 (conn->receiver || request_hands_on(&t->request)) && conn->begin.at_ns)
		request_link_work(conn, t);
	if (request_length_goes_on(conn)) {
		request_answered(key, conn, unsent);
		return false;
	}
	return request_write_steps(key, conn, &buffer, t, ret, unsent);
}

/* A write to a known connection ended. `unsent`: enum request_lack, if the answer ends with it. */
static __always_inline void request_wrote(__u64 key, int ret, __u32 unsent)
{
	if (!request_wrote_begin(key, ret, unsent))
		return;
	for (int i = 1; i < REQUEST_STEPS_TIMES; i++) {
		if (i == REQUEST_STEPS_TIMES - 1)
			unsent |= REQUEST_STEPS_LAST;
		if (!request_wrote_more(key, ret, unsent))
			return;
	}
}

#endif
