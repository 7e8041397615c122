/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads of sockets by tracked processes: where a request begins. */
#ifndef UNDERSPAN_REQUEST_READ_BPF_H
#define UNDERSPAN_REQUEST_READ_BPF_H

#include "request/close.bpf.h"
#include "request/fed.bpf.h"
#include "request/head.bpf.h"
#include "request/pool.bpf.h"
#include "request/recognise.bpf.h"

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
		/* the time from the end of the accept queue to the read has no known cause */
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

/* Number of requests of the listener that waited before this request. */
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
	/* the first read of a connection whose accept() was seen */
	conn->counted = arrival && arrival->accepted_ns;
	return conn;
}

/*
 * Has the thread slept since the last answer on this connection, or since accept()? Not if a
 * different thread accepted the connection: the threads of gunicorn's gthread worker (since 24)
 * wait for the first bytes in an epoll instance of one socket, made for that wait.
 */
static __always_inline bool request_slept_between(__u64 slept_ns,
						  const struct request_connection *conn,
						  const struct request_arrival *arrival)
{
	__u32 accepted_tid = arrival ? arrival->accepted_tid : 0;

	if (accepted_tid && accepted_tid != current_tid())
		return false;
	if (conn->reader == bpf_get_current_task() && conn->ended_ns && slept_ns > conn->ended_ns)
		return true;
	return accepted_tid && !conn->ended_ns && slept_ns > arrival->accepted_ns;
}

/*
 * Does the thread serve several connections, waiting for all at once? Threads that serve one
 * connection at a time wait for bytes in poll() or read(), and in epoll_wait() at most for a new
 * connection, or for one that they have not accepted.
 */
static __always_inline bool request_thread_is_loop(struct thread *t,
						   const struct request_connection *conn,
						   const struct request_arrival *arrival)
{
	struct request_sums *sums = &t->request;

	if (arrival && arrival->accepted_tid &&
	    request_slept_between(sums->epolled_ns, conn, arrival))
		sums->loops = 1;
	return sums->loops || sums->open > 1 ||
	       request_slept_between(sums->polled_ns, conn, arrival);
}

/* Nothing is known of the next request and answer. */
static __always_inline void request_connection_clear(struct request_connection *conn)
{
	conn->bytes_in = conn->bytes_out = 0;
	conn->chunks[DIRECTION_OUT].left = 0;
	conn->slow_since_ns = conn->slow_ns = conn->slow_await_ns = 0;
	conn->status = conn->not_measured = 0;
	conn->answer = ANSWER_NONE;
	conn->framing = conn->line_n = conn->head_ended = 0;
	conn->gone = conn->answer_body = conn->to_close = 0;
	conn->busy_threads = 0;
	conn->closed_ns = 0;
	conn->has_queue_depth = conn->has_busy_threads = 0;
	conn->fed_ns = conn->fed_await_ns = conn->head_wait_ns = conn->body_wait_ns = 0;
	conn->receiver = 0;
}

/*
 * Are the threads that serve requests those that have read them? Not with a pool, whose threads
 * nobody counts: a reader with no other open request has handed none on.
 */
static __always_inline bool request_busy_known(const struct request_process *process,
					       const struct request_sums *sums)
{
	return process && (sums->open == 1 || (!process->pool_ns && !sums->woke_ns));
}

/* The current thread begins to serve a request. `now`: of the read. */
static __always_inline void request_begin(__u64 key, struct request_connection *conn,
					  struct thread *t, struct request_arrival *arrival,
					  __u32 fd, bool at_last_end)
{
	__u64 task = bpf_get_current_task();
	struct request_process *process = request_process_of(current_tgid());
	__u32 open;

	/* before the thread counts the request: what is shared begins now */
	if (!at_last_end)
		request_snapshot_take(t, &conn->begin);
	conn->read_ns = conn->begin.at_ns;
	open = request_thread_opens(t, at_last_end ? bpf_ktime_get_ns() : conn->read_ns);
	t->request.fd = fd;
	t->request.read_ns = conn->read_ns;
	t->request.read_key = key;
	request_context_read(t);
	conn->nth = t->request.reads;
	conn->model = request_thread_is_loop(t, conn, arrival) ? REQUEST_MODEL_loop
							       : REQUEST_MODEL_thread;
	if (t->request.epolled_ns && arrival && arrival->accepted_tid == current_tid())
		t->request.serves = REQUEST_SERVES_SEVERAL;
	conn->worker = conn->reader = task;
	conn->link = REQUEST_LINK_same;
	conn->fd = fd;
	conn->open_requests = open;
	request_connection_clear(conn);
	if (process) {
		/* a thread that ended with an open request is counted out twice */
		conn->busy_threads = (__s32)process->busy > 0 ? process->busy : 0;
		conn->has_busy_threads = request_busy_known(process, &t->request);
		process->read_ns = conn->read_ns;
		if (open == 1)
			__sync_fetch_and_add(&process->busy, 1);
	}
	t->request.lacks = request_lacks_of(process, current_tgid(), conn->read_ns);
	request_header_set(t, &conn->header, conn->read_ns);
}

/* What arrives from now on belongs to the next request. */
static __always_inline void request_arrival_next(__u64 key, struct request_arrival *arrival)
{
	arrival->first_byte_ns = request_readable(key) ? bpf_ktime_get_ns() : 0;
}

/*
 * Would the look at a new request's socket show what the thread's last one did? Of a thread that
 * serves one request at a time, from sockets that block, and of a loop.
 */
static __always_inline bool request_model_known(const struct request_connection *conn,
						const struct request_sums *sums)
{
	if (conn->model == REQUEST_MODEL_thread)
		return sums->serves == REQUEST_SERVES_ONE && sums->blocks;
	return sums->serves == REQUEST_SERVES_SEVERAL && !sums->blocks;
}

enum request_opened {
	REQUEST_OPENED_KNOWN = 1 << 30,	 /* the model needs no look at the socket */
	REQUEST_OPENED_TAKEN = 1U << 31, /* request_arrival_taken() is done */
};

/*
 * A read by a tracked process has a request of `got` bytes, behind `before` bytes of an earlier
 * body. `began`: REQUEST_BEGAN(). Returns how many bytes at the read's end may belong to the head
 * as well, and flags of enum request_opened. Global: see request_scan_line().
 */
__noinline int request_open(__u64 key, __u32 began, __u32 got, __u32 before)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	struct request_connection *conn = request_connection_of(key);
	struct thread *t = request_current_thread();
	__u32 left, skip = (began & ~REQUEST_BEGAN_READ) >> 16;
	struct request_buffer buffer = {};

	if (!conn && arrival && arrival->foreign) {
		request_began_end(began);
		return 0;
	}
	if (!conn)
		conn = request_connection_new(key, arrival);
	if (!conn || !t || !request_call_buffer(&buffer) || before + skip > buffer.len ||
	    skip > got) {
		if (arrival)
			arrival->older = 1; /* its answer is not to be counted as well */
		request_began_end(began);
		request_lost();
		return 0;
	}
	buffer.base += before + skip;
	buffer.len -= before + skip;
	if (arrival && arrival->odd == ODD_PROXY)
		arrival->odd = ODD_NOT;
	request_begin(key, conn, t, arrival, buffer.fd, false);
	conn->n += conn->counted;
	conn->method = began >> 8 & 255;
	conn->bytes_in = got;
	conn->body = BODY_NONE;
	left = request_head_keep(key, conn, &buffer, got - skip, began & REQUEST_BEGAN_READ);
	if ((began & 255) == START_CUT)
		conn->head = HEAD_BEGUN;
	if (before) /* the arrival is that of the body's rest */
		conn->not_measured |= REQUEST_LACK_arrival;
	request_set_waits(conn, arrival, conn->read_ns);
	request_set_depth(conn, arrival);
	if (before)
		conn->has_queue_depth = 0;
	if (conn->family == REQUEST_FAMILY_unix) {
		request_unix = 1;
		request_unix_watch(t, key, false);
	}
	request_port_note(conn->server_port);
	left &= ~(REQUEST_OPENED_KNOWN | REQUEST_OPENED_TAKEN);
	if (request_model_known(conn, &t->request))
		left |= REQUEST_OPENED_KNOWN;
	if (arrival) {
		request_arrival_next(key, arrival);
		left |= REQUEST_OPENED_TAKEN;
	}
	return left;
}

/* Later arrivals belong to the next request. */
static __noinline int request_arrival_taken(__u64 key)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	struct request_arrival unseen = {};
	struct request_connection *conn;

	if (arrival) {
		request_waits_no_more(arrival);
		request_arrival_next(key, arrival);
		return 0;
	}
	conn = bpf_map_lookup_elem(&request_connections, &key);
	if (!conn || request_readable(key))
		return 0;
	unseen.netns = conn->netns;
	unseen.port = conn->server_port;
	unseen.copied_seq = conn->inode;
	unseen.open = conn->worker != 0;
	bpf_map_update_elem(&request_arrivals, &key, &unseen, BPF_ANY);
	return 0;
}

/* ---- reads ---- */

/* An untracked process has read from a socket with the port of a tracked server. */
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

/*
 * The first read behind an answer whose request had too many chunks in a read to be followed. The
 * body has ended if the server had read up to a last chunk when it answered. Otherwise it was
 * answered early: what looks like a last chunk in the rest may be a chunk's data, and what follows
 * like a request as well. Returns whether the body has ended.
 */
static __always_inline bool request_skipped_ends(struct request_connection *conn)
{
	if (conn->body != BODY_SKIPPED || (conn->worker && !request_answer_open_ended(conn)))
		return false;
	conn->body = conn->last_chunk_n[DIRECTION_IN] == REQUEST_LAST_CHUNK ? BODY_NONE
									    : BODY_UNKNOWN;
	return !conn->body;
}

/*
 * A read of a body. Returns how many of the bytes are not the next request's: all, unless the
 * request was answered before the body's end.
 */
static __always_inline __u32 request_body_read(__u64 key, struct request_connection *conn,
					       const struct request_buffer *buffer, __u32 got)
{
	enum { EXPECTATION_FAILED = 417 };
	__u32 taken;

	/* the client keeps the body back, and a server that goes on reads the next request */
	if (!conn->worker && conn->status == EXPECTATION_FAILED)
		conn->body = BODY_NONE;
	if (!conn->body || request_skipped_ends(conn))
		return 0;
	if ((conn->body == BODY_CHUNKED || conn->body == BODY_SKIPPED) &&
	    got > buffer->len) /* in further pieces */
		conn->body = BODY_UNKNOWN;
	taken = request_body_take(key, conn, buffer->base, got);
	if (!conn->worker)
		return taken;
	conn->bytes_in += got;
	return got;
}

/* The head of the open request goes on. Global: for a separate stack. */
__noinline int request_head_read(__u64 key, __u32 got)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_buffer buffer = {};
	bool kept = true;

	if (!conn || !request_call_buffer(&buffer))
		return 0;
	conn->bytes_in += got;
	if (conn->head == HEAD_OPEN || conn->head == HEAD_BEGUN)
		kept = request_head_append(key, conn, &buffer, got);
	if (conn->head == HEAD_BEGUN && !request_head_begins(key, conn)) {
		request_drop(key, conn);
		request_not_begun(key, START_NONE);
		return 0;
	}
	if (!kept && conn->head == HEAD_OPEN)
		conn->head = HEAD_SPLIT;
	return got < buffer.len ? got : buffer.len;
}

/*
 * Does a read of the socket sleep until bytes are there? No loop's does: one client would stop all
 * others. Global: the verifier explores it once.
 */
__noinline int request_socket_blocks(__u64 key)
{
	enum { NONBLOCK = 04000 }; /* O_NONBLOCK of x86-64 and arm64 */
	struct file *file = BPF_CORE_READ((struct sock *)key, sk_socket, file);

	return file && !(BPF_CORE_READ(file, f_flags) & NONBLOCK);
}

/*
 * What the socket of a request just begun tells. Of a loop, before the first wait that the agent
 * sees; of a thread that is none; and of a lingering close: what is read then is dropped, so the
 * request ends here, and does not stay open for the thread until the client closes. Not in
 * request_open(), which has no stack for it. Global: the verifier explores it once.
 */
__noinline int request_begun(__u64 key, __u32 shut)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct thread *t = thread_find(current_task());
	bool blocks = t && t->request.open == 1 && request_socket_blocks(key);

	if (t)
		t->request.blocks = blocks;
	/* the handler waits in select() or epoll_wait() from now on, if the thread does */
	if (conn && blocks)
		conn->model = REQUEST_MODEL_thread;
	else if (conn && conn->model == REQUEST_MODEL_thread &&
		 !(t && t->request.serves == REQUEST_SERVES_ONE) && request_is_epolled(key))
		conn->model = REQUEST_MODEL_loop;
	if (conn && shut == REQUEST_IS_RESET && !conn->shut)
		conn->gone = GONE_WRITE;
	else if (conn && shut)
		request_closed(key);
	return 0;
}

/*
 * A tracked process has read `got` bytes. `shut`: enum request_shut. Global: see
 * request_scan_line().
 */
__noinline int request_read(__u64 key, __u32 got, __u32 shut)
{
	struct request_connection *conn = request_connection_of(key);
	struct request_buffer buffer = {};
	bool open = conn && conn->worker;
	__u32 began = START_NONE, start, n, opened, before = 0;

	if (!got) {
		if (open && !shut)
			request_client_gone(key, conn, GONE_EOF);
		return 0;
	}
	if (open)
		request_fed(key, conn);
	request_call_buffer(&buffer);
	if (conn && conn->body) {
		before = request_body_read(key, conn, &buffer, got);
		if (before >= got || before >= buffer.len)
			goto taken;
		got -= before;
		buffer.base += before;
		buffer.len -= before;
	}
	if (!buffer.len) {
		if (!open || request_answer_open_ended(conn))
			request_read_unseen(key);
		goto taken;
	}
	if (open && !conn->head_ended) {
		n = request_head_read(key, got);
		if (n)
			request_head_lines(key, buffer.base, n);
		goto taken;
	}
	/* without a method: the answer to a pipelined HEAD ends with its head */
	if (!open || request_answer_open_ended(conn) ||
	    (conn->method == REQUEST_METHOD_none && conn->answer == ANSWER_LENGTH &&
	     !conn->answer_body))
		began = request_recognise(key, buffer.base, got,
					  conn ? (got < buffer.len ? got : buffer.len) : 0);
	start = began & 255;
	if (start == START_REQUEST || (start == START_CUT && !open)) {
		if (open)
			request_end(key, REQUEST_END_next_request, REQUEST_OUTCOME_answered,
				    REQUEST_END_AT_LAST_WRITE);
		request_thread_leaves(key);
		opened = request_open(key, began, got, before);
		n = opened & ~(REQUEST_OPENED_KNOWN | REQUEST_OPENED_TAKEN);
		if (n)
			request_head_lines(
				key, buffer.base + (got < buffer.len ? got : buffer.len) - n, n);
		if (!(opened & REQUEST_OPENED_KNOWN) || shut)
			request_begun(key, shut);
		if (opened & REQUEST_OPENED_TAKEN)
			return 0;
	} else if (open) {
		conn->bytes_in += got;
	}
taken:
	request_arrival_taken(key);
	return 0;
}

#endif
