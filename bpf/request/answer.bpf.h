/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers: who answers a request, the answer's head, and where its body ends. */
#ifndef UNDERSPAN_REQUEST_ANSWER_BPF_H
#define UNDERSPAN_REQUEST_ANSWER_BPF_H

#include "request/chunks.bpf.h"
#include "request/older.bpf.h"
#include "request/read.bpf.h"

/* The thread's last answer if later than `since_ns`, otherwise its first wake-up since. */
static __always_inline const struct request_snapshot *
request_pool_begin(const struct request_sums *sums, __u64 since_ns)
{
	if (sums->answered.at_ns >= since_ns)
		return &sums->answered;
	if (sums->woken[0].at_ns >= since_ns)
		return &sums->woken[0];
	return sums->woken[1].at_ns >= since_ns ? &sums->woken[1] : NULL;
}

/*
 * The current thread answers a request that was read by a different thread. Begin of the work:
 * since the last read of the request, which most readers hand on as a whole; otherwise since the
 * first.
 */
static __always_inline void request_pool_begins(struct request_connection *conn, struct thread *t)
{
	const struct request_snapshot *begin;

	conn->worker = bpf_get_current_task();
	conn->model = REQUEST_MODEL_pool;
	conn->link = REQUEST_LINK_write;
	request_header_set(t, &conn->header, bpf_ktime_get_ns());
	begin = request_pool_begin(&t->request, conn->fed_ns ?: conn->read_ns);
	if (!begin)
		begin = request_pool_begin(&t->request, conn->read_ns);
	if (begin)
		conn->begin = *begin;
	else
		conn->begin.at_ns = 0; /* not known */
	/* the reader may end this answer */
	t->request.woken[0].at_ns = t->request.woken[1].at_ns = 0;
}

/*
 * A pool's thread answers a request that was read together with the last one. No thread counts the
 * request as open: the reader will not be seen to take it.
 */
static __always_inline void request_begin_pooled(struct request_connection *conn, struct thread *t)
{
	conn->read_ns = conn->begin.at_ns;
	conn->reader = 0;
	request_connection_clear(conn);
	request_pool_begins(conn, t);
}

enum { REQUEST_LOOP_NS = 2000000 }; /* to read a request, to hand it on, and to answer it */

/*
 * Was the work of the pool's thread all of the request's work? Before the hand-off, the loop's
 * thread waited only for the rest of the request, and it ran no longer than the pool's thread.
 */
static __always_inline bool request_work_is_all(const struct request_connection *conn,
						const struct request_sums *sums,
						const struct request_work *work, __u64 now)
{
	__u64 fed = conn->begin.parts[REQUEST_await], ran, ready;
	__u64 until_ns = request_worked_until(work);

	if (conn->fed_await_ns > fed)
		fed = conn->fed_await_ns;
	if (work->handed.first_await_ns != fed)
		return false;
	ready = request_ready_ns(work->handed.at.parts) - request_ready_ns(conn->begin.parts);
	ran = work->handed.at.at_ns - work->handed.worked_ns - conn->read_ns -
	      (fed - conn->begin.parts[REQUEST_await]) - ready;
	ready = request_ready_ns(sums->parts) - work->loop_ready_ns;
	ran += now - until_ns - ready;
	return (__s64)(ran - REQUEST_LOOP_NS) <=
	       (__s64)(work->handed.worked_ns + until_ns - work->begin.at_ns - work->ready_ns);
}

/*
 * The reader answers; a pool thread may have run the handler. From the read to the hand-off, the
 * parts are those of the reader.
 */
static __noinline int request_link_work(struct request_connection *conn, struct thread *t)
{
	struct request_work *work = request_work_of(t, conn);
	__u64 now = bpf_ktime_get_ns();

	if (!work || !request_work_is_all(conn, &t->request, work, now))
		return 0;
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++)
		conn->begin.parts[i] += work->begin.parts[i] - work->handed.at.parts[i];
	conn->begin.busy_ns += work->begin.busy_ns - work->handed.at.busy_ns;
	conn->begin.at_ns += work->begin.at_ns - work->handed.at.at_ns;
	conn->header = work->header;
	conn->receiver = work->thread;
	conn->linked_ns = now;
	conn->model = REQUEST_MODEL_pool;
	conn->link = REQUEST_LINK_wake;
	t->request.linked_peer = work->peer;
	t->request.linked_n = conn->nth;
	return 0;
}

enum { REQUEST_ANSWER_BYTES = 256 }; /* most heads of answers are shorter */

/* The answer's first bytes are in the scratch space: `have` of them. */
static __always_inline void request_answer_begins(struct request_connection *conn,
						  const char *bytes, __u32 have)
{
	__u32 status = request_status_of(bytes, have);

	if (status == STATUS_CUT) {
		conn->answer = ANSWER_START;
	} else if (status == STATUS_NONE) {
		__sync_fetch_and_add(&request_unreadable, 1);
		conn->answer = ANSWER_UNFRAMED;
	} else if (status < 200 && status != 101) {
		conn->answer = ANSWER_INTERIM;
		conn->bytes_out = 0; /* the answer is still to come */
	} else {
		conn->status = status;
		conn->answer = ANSWER_HEAD;
	}
}

/* The answer's head ends: selects how the body's end is found. */
static __always_inline void request_answer_framed(struct request_connection *conn,
						  const struct request_scan *scan)
{
	conn->framing = 0;
	conn->line_n = 0;
	if (conn->answer == ANSWER_INTERIM) {
		conn->answer = ANSWER_NONE;
		return;
	}
	conn->chunks[DIRECTION_OUT].left = 0;
	conn->chunks[DIRECTION_OUT].state = CHUNK_SIZE;
	conn->last_chunk_n[DIRECTION_OUT] = 0;
	if (conn->method == REQUEST_METHOD_HEAD || conn->status == 204 || conn->status == 304) {
		conn->answer = ANSWER_LENGTH;
	} else if (scan->framing & FRAMING_UNCLEAR) {
		conn->answer = ANSWER_UNFRAMED;
	} else if (scan->framing & FRAMING_CHUNKED) {
		conn->answer = ANSWER_CHUNKED;
	} else if (scan->framing) {
		conn->answer = ANSWER_LENGTH;
		conn->chunks[DIRECTION_OUT].left = scan->length;
	} else {
		conn->answer = ANSWER_UNFRAMED;
		/* without a method: perhaps the answer to a pipelined HEAD */
		conn->to_close = conn->method != REQUEST_METHOD_none;
	}
}

/*
 * The `n` bytes at `base` are written while the head of the answer is incomplete. Returns how many
 * bytes belong to the head.
 */
static __always_inline __u32 request_answer_head(__u64 key, struct request_connection *conn,
						 __u64 base, __u32 n)
{
	struct request_scan *scan = request_scan_begin();
	__u32 len = n, taken, kept = conn->line_n;

	if (!scan) {
		conn->answer = ANSWER_UNFRAMED;
		return 0;
	}
	if (kept && !request_line_restore(key, scan, kept))
		goto unframed;
	/* the rest of most first writes is the body */
	if (len > REQUEST_ANSWER_BYTES)
		len = REQUEST_ANSWER_BYTES;
	scan->framing = conn->framing;
	scan->length = conn->chunks[DIRECTION_OUT].left;
	if (!request_scan_bytes(scan, kept, base, len))
		goto unframed;
	if (conn->answer <= ANSWER_START)
		request_answer_begins(conn, scan->head.bytes, kept + len);
	if (conn->answer == ANSWER_UNFRAMED)
		goto out;
	if (!scan->end && n > len) {
		len = n < REQUEST_PIECE_BYTES ? n : REQUEST_PIECE_BYTES;
		scan->framing = conn->framing;
		scan->length = conn->chunks[DIRECTION_OUT].left;
		if (!request_scan_bytes(scan, kept, base, len))
			goto unframed;
	}
	if (scan->end) {
		taken = scan->end - kept;
		if (conn->answer != ANSWER_INTERIM)
			conn->bytes_out += taken;
		request_answer_framed(conn, scan);
		request_scan_end(scan);
		return taken < n ? taken : n;
	}
	/* the connection keeps the result of this part of the head */
	conn->framing = scan->framing;
	conn->chunks[DIRECTION_OUT].left = scan->length;
	conn->line_n = request_line_keep(key, scan, kept + len);
	if (conn->answer != ANSWER_INTERIM)
		conn->bytes_out += len;
	request_scan_end(scan);
	return len;
unframed:
	conn->answer = ANSWER_UNFRAMED;
out:
	request_scan_end(scan);
	return 0;
}

/*
 * The answer goes on with `left` bytes, the first `n` at `base`. Returns how many were taken: fewer
 * at the end of the answer, of an interim answer, or of a part of the head. Global: see
 * request_scan_line().
 */
__noinline int request_answer_step(__u64 key, __u64 base, __u32 n, __u32 left)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_chunks *chunks;
	__u32 head = 0, body;

	if (!conn || n > left)
		return left;
	if (conn->answer <= ANSWER_HEAD)
		head = request_answer_head(key, conn, base, n);
	if (conn->answer <= ANSWER_HEAD)
		return head;
	body = left - head;
	chunks = &conn->chunks[DIRECTION_OUT];
	if (conn->answer == ANSWER_LENGTH) {
		body = body < chunks->left ? body : chunks->left;
		chunks->left -= body;
		conn->answer_body |= body != 0;
		if (!chunks->left)
			conn->answer = ANSWER_ENDED;
	} else if (conn->answer == ANSWER_CHUNKED && chunks->state != CHUNK_BAD) {
		body = request_chunks_take(key, DIRECTION_OUT, base + head, n - head);
		if (chunks->state == CHUNK_ENDED)
			conn->answer = ANSWER_ENDED_CHUNKED;
	}
	conn->bytes_out += body;
	return head + body;
}

/*
 * An answer without a read, beginning with the `n` bytes at `base`, perhaps only a part of the
 * status line: the second of two requests in a single read. False: no answer, or not followed.
 * Global: called twice.
 */
__noinline int request_open_pipelined(__u64 key, __u64 base, __u32 n, __u32 fd)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct thread *t = request_current_thread();
	char b[REQUEST_START_BYTES] = {};

	if (n > REQUEST_STATUS_BYTES)
		n = REQUEST_STATUS_BYTES;
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (!conn || !t || conn->body == BODY_FOREIGN || n < REQUEST_VERSION_BYTES ||
	    n > sizeof(b) || bpf_probe_read_user(b, n, (void *)base) ||
	    request_status_of(b, n) == STATUS_NONE)
		return false;
	if (conn->body == BODY_UNKNOWN ||
	    conn->body == BODY_SKIPPED) { /* the request was taken for a part of the body */
		__sync_fetch_and_add(&request_unbounded, 1);
		return false;
	}
	/* the sums at the last answer's end belong to the thread of that answer, and to no request
	 * that it has served since */
	if (!conn->begin.at_ns ||
	    (conn->reader != bpf_get_current_task() && conn->link != REQUEST_LINK_write) ||
	    (conn->model == REQUEST_MODEL_thread && t->request.read_key != key)) {
		conn->begin.at_ns = 0;
		__sync_fetch_and_add(&request_pipelined, 1);
		return false;
	}
	if (conn->link == REQUEST_LINK_write)
		request_begin_pooled(conn, t);
	else
		request_begin(key, conn, t, NULL, fd, true);
	if (conn->family == REQUEST_FAMILY_unix)
		request_unix_watch(t, key, false);
	conn->n += conn->counted;
	conn->method = REQUEST_METHOD_none;
	conn->head = HEAD_DONE;
	conn->head_ended = 1;
	conn->accept_queue_ns = conn->client_wait_ns = conn->queue_ns = 0;
	conn->start_ns = conn->read_ns;
	conn->not_measured |= REQUEST_LACK_pipelined | REQUEST_LACK_arrival;
	return true;
}

#endif
