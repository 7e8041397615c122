/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The end of a request: parts, sum, and perhaps a row. */
#ifndef UNDERSPAN_REQUEST_REPORT_BPF_H
#define UNDERSPAN_REQUEST_REPORT_BPF_H

#include "gil_wait/gil.bpf.h"
#include "request/killed.bpf.h"
#include "request/lines.bpf.h"
#include "request/profile.bpf.h"
#include "request/threads.bpf.h"
#include "request/work.bpf.h"

/* Scratch space for a row, too big for the BPF stack. */
struct request_out {
	__u64 users; /* programs in use of the space: kernels since 7.0 may preempt a program */
	struct request_snapshot end;
	__u64 rest_ns;	 /* from there to the request's end */
	__u64 worked_ns; /* of a thread that ended with its process: see struct request_killed */
	__u32 lacks;	 /* the same */
	__u32 end_by;	 /* the same */
	bool killed;	 /* the handler's thread ended with its process */
	struct request_event event;
	char head[REQUEST_HEAD_BYTES + REQUEST_TAIL_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request_out);
} request_outs SEC(".maps");

enum { REQUEST_REST_NS = 1000000 }; /* for the reader to write what the client has made room for */

enum request_end_flags {
	REQUEST_END_AT_LAST_WRITE = 1, /* the time and sums of the last write */
	REQUEST_END_AT_CLOSE = 2,      /* the client waits for the end of the connection */
};

/* Is the GIL of the process seen by the scheduler path? */
static __always_inline bool request_gil_known(__u32 tgid)
{
	struct gil_process *gil;

	if (!gil_wait_runs)
		return false;
	gil = bpf_map_lookup_elem(&gil_processes, &tgid);
	return gil && !gil->by_callsite;
}

/*
 * How long the reader has written the rest of an answer that a pool's thread began; or how long
 * after the last write another thread closed the connection that the client waited for.
 */
static __always_inline __u64 request_rest_ns(const struct request_connection *conn, __u32 flags)
{
	__u64 end = conn->answer >= ANSWER_ENDED ? bpf_ktime_get_ns() : conn->wrote_ns;

	if (flags & REQUEST_END_AT_CLOSE)
		return bpf_ktime_get_ns() - conn->last.at_ns;
	if (conn->link != REQUEST_LINK_write || end < conn->last.at_ns ||
	    (conn->answer < ANSWER_ENDED && !(flags & REQUEST_END_AT_LAST_WRITE)))
		return 0;
	return end - conn->last.at_ns;
}

/* What the handler's thread `t` knows at the request's end beside the sums. */
static __always_inline void request_thread_ends(__u64 key, struct request_connection *conn,
						struct thread *t)
{
	struct request_sums *sums = &t->request;

	conn->open_requests = request_most_open(sums, conn->begin.at_ns, conn->open_requests);
	/* tornado reads before the socket is in the loop's epoll instance */
	if (conn->model == REQUEST_MODEL_thread &&
	    (sums->polled_ns > conn->begin.at_ns ||
	     (sums->woke_ns > conn->begin.at_ns && request_is_epolled(key))))
		conn->model = REQUEST_MODEL_loop;
	if (conn->model != REQUEST_MODEL_thread)
		sums->serves = REQUEST_SERVES_SEVERAL;
	else if (!sums->serves)
		sums->serves = REQUEST_SERVES_ONE;
}

/* The handler's thread has ended with its process: its last sums, and what it knew. */
static __always_inline bool request_end_killed(struct request_connection *conn,
					       struct request_out *out)
{
	struct request_killed *killed = request_killed_find(conn);
	__u64 now = bpf_ktime_get_ns();

	if (!killed)
		return false;
	out->end = killed->sums;
	out->rest_ns = now > out->end.at_ns ? now - out->end.at_ns : 0;
	out->worked_ns = killed->worked_ns;
	out->lacks = killed->lacks;
	out->end_by = killed->end_by;
	out->killed = true;
	if (killed->polled_ns > conn->begin.at_ns && conn->model != REQUEST_MODEL_pool)
		conn->model = REQUEST_MODEL_loop;
	return true;
}

/*
 * The sums at the request's end: of the present time if the present thread `t` ran the handler,
 * otherwise (`t` is NULL) of the last write. Returns whether the sums belong to the handler's
 * thread.
 */
static __always_inline bool request_end_sums(__u64 key, struct request_connection *conn,
					     struct request_out *out, struct thread *t, __u32 flags)
{
	struct request_snapshot *ret = &out->end;

	out->rest_ns = 0;
	out->killed = false;
	if (t && !(flags & REQUEST_END_AT_LAST_WRITE)) {
		request_snapshot_take(t, ret);
		request_thread_ends(key, conn, t);
		return conn->begin.at_ns != 0;
	}
	if (!(flags & REQUEST_END_AT_LAST_WRITE) && request_end_killed(conn, out))
		return conn->begin.at_ns != 0;
	if (conn->last.at_ns) {
		*ret = conn->last;
		out->rest_ns = request_rest_ns(conn, flags);
		return conn->begin.at_ns != 0;
	}
	ret->at_ns = conn->closed_ns ?: bpf_ktime_get_ns();
	return false;
}

/* The thread's parts; the remainder is time on a CPU. */
static __always_inline void request_fill_parts(struct request_connection *conn,
					       struct request_out *out)
{
	__u64 wall = out->end.at_ns - conn->begin.at_ns, sum, part, slow = conn->slow_await_ns;
	__u64 *parts = out->event.parts;

	sum = out->end.busy_ns - conn->begin.busy_ns;
	parts[REQUEST_loop_busy] = sum;
	if (sum)
		conn->model = conn->model == REQUEST_MODEL_pool ? REQUEST_MODEL_pool
								: REQUEST_MODEL_loop;
	for (int i = 0; i < REQUEST_THREAD_PART_MAX; i++) {
		part = out->end.parts[i] - conn->begin.parts[i];
		/* never more than the wall time, even if the thread's record was lost */
		if (part > wall - sum)
			part = wall - sum;
		parts[i] = part;
		sum += part;
	}
	parts[REQUEST_cpu] = wall - sum;
	if (conn->link == REQUEST_LINK_write) { /* no loop's thread */
		parts[REQUEST_other] += parts[REQUEST_await];
		parts[REQUEST_await] = 0;
	}
	/* a loop waits for the client in epoll_wait(); negative: such a wait has not ended */
	if ((__s64)slow < 0)
		slow = 0;
	if (slow > parts[REQUEST_await])
		slow = parts[REQUEST_await];
	parts[REQUEST_await] -= slow;
	parts[REQUEST_client_slow] += slow;
	slow = conn->slow_ns - slow;
	if (slow > out->rest_ns)
		slow = out->rest_ns;
	parts[REQUEST_client_slow] += slow;
	parts[REQUEST_other] += out->rest_ns - slow;
	if (!out->killed && out->rest_ns - slow > REQUEST_REST_NS)
		out->event.not_measured |= REQUEST_LACK_work_elsewhere;
}

/* A loop waits for the rest of a head in epoll_wait(), and no handler has begun: for the client. */
static __always_inline void request_move_head_wait(const struct request_connection *conn,
						   __u64 *parts)
{
	__u32 from = conn->link == REQUEST_LINK_write ? REQUEST_pool_wait : REQUEST_await;
	__u64 ns = conn->head_wait_ns < parts[from] ? conn->head_wait_ns : parts[from];

	parts[from] -= ns;
	parts[REQUEST_client_wait] += ns;
}

/*
 * The same of a body. A loop's handler may have begun and have waited for more than the body: it is
 * a share of `await` then. A pool's thread that began behind the body's end has not.
 */
static __always_inline void request_fill_body_wait(const struct request_connection *conn,
						   struct request_event *event)
{
	bool before = conn->link == REQUEST_LINK_write && conn->fed_ns <= conn->begin.at_ns;
	__u64 *part = &event->parts[before ? REQUEST_pool_wait : REQUEST_await];
	__u64 ns = conn->body_wait_ns < *part ? conn->body_wait_ns : *part;

	if (before) {
		*part -= ns;
		event->parts[REQUEST_client_wait] += ns;
	} else {
		event->body_wait_ns = ns;
	}
}

/* The peer with most of `net`: of the reader's waits, or of a pool's thread that it linked. */
static __always_inline void request_fill_peer(struct request_event *event,
					      const struct request_connection *conn,
					      struct thread *t)
{
	struct request_peer *most;
	__u64 own_ns;

	if (!event->parts[REQUEST_net])
		return;
	if (conn->link != REQUEST_LINK_wake)
		most = request_peer_most(&t->request);
	else if (t->request.linked_n == conn->nth)
		most = &t->request.linked_peer;
	else
		return;
	__builtin_memcpy(event->net_peer_ip, most->ip, sizeof(most->ip));
	event->net_peer_port = most->port;
	own_ns = request_peer_ns(most);
	event->net_peer_ns = own_ns < event->parts[REQUEST_net] ? own_ns
								: event->parts[REQUEST_net];
}

/*
 * May a part of `await` be the work of a pool's thread? Of a linked request: has the loop's thread
 * woken another thread since the link, or has the linked one worked on? Otherwise: has the loop
 * handed work on since the read (where another thread ends the request: see request_unix_closed()),
 * or a pool's thread run? (Without the GIL's address, waiters for
 * the GIL count as pool threads: the mark is then a possibility.)
 */
static __always_inline bool request_gave_work(const struct request_connection *conn,
					      const struct request_out *out,
					      const struct request_process *process,
					      const struct thread *t)
{
	if (out->killed)
		return out->worked_ns > conn->begin.at_ns;
	if (!t)
		return conn->link != REQUEST_LINK_wake && process &&
		       process->pool_ns > conn->begin.at_ns;
	if (conn->link == REQUEST_LINK_wake)
		return t->request.woke_ns > conn->linked_ns ||
		       request_work_goes_on(conn->receiver, conn->linked_ns, out->end.at_ns);
	/* read with an earlier request, it was not open when the loop handed work on */
	if (conn->not_measured & REQUEST_LACK_pipelined || t->request.woke_ns > conn->begin.at_ns)
		return true;
	return process && process->pool_ns > conn->begin.at_ns;
}

/* What nobody sees of the process, looked up anew every 10 ms: two hashes, cold in most cases. */
static __noinline __u32 request_lacks_of(struct request_process *process, __u32 tgid, __u64 now)
{
	__u32 lacks = 0;

	if (process && now - process->covered_ns < REQUEST_COVERED_NS)
		return process->lacks;
	if (!request_gil_known(tgid))
		lacks |= REQUEST_LACK_gil;
	if (!bpf_map_lookup_elem(&gc_clocks, &tgid))
		lacks |= REQUEST_LACK_gc;
	if (process) {
		process->lacks = lacks;
		process->covered_ns = now;
	}
	return lacks;
}

/* `t`: the present thread, if it ran the handler; else NULL. */
static __always_inline void request_fill(struct request_connection *conn, struct request_out *out,
					 struct request_process *process, struct thread *t,
					 __u64 key, __u32 end_by, __u32 outcome, __u32 flags)
{
	struct request_event *event = &out->event;
	__u32 lacks;
	bool known;

	__builtin_memset(event, 0, sizeof(*event));
	known = request_end_sums(key, conn, out, t, flags);
	event->header = conn->header;
	event->header.start_ns = conn->start_ns;
	event->header.end_ns = out->end.at_ns + out->rest_ns;
	event->not_measured = conn->not_measured;
	if (known) {
		request_fill_parts(conn, out);
		event->parts[REQUEST_pool_wait] = conn->begin.at_ns - conn->read_ns;
		request_move_head_wait(conn, event->parts);
		request_fill_body_wait(conn, event);
	} else {
		event->parts[REQUEST_other] = event->header.end_ns - conn->read_ns;
		event->not_measured |= REQUEST_LACK_work_elsewhere;
	}
	event->parts[REQUEST_accept_queue] = conn->accept_queue_ns;
	event->parts[REQUEST_client_wait] += conn->client_wait_ns;
	event->parts[REQUEST_queue] = conn->queue_ns;
	lacks = out->killed ? out->lacks
			    : request_lacks_of(process, event->header.host_pid, out->end.at_ns);
	if (lacks & REQUEST_LACK_gil || gil_wait_out || conn->read_ns < gil_wait_since_ns)
		event->not_measured |= REQUEST_LACK_gil;
	if (known && (conn->model == REQUEST_MODEL_loop || conn->link == REQUEST_LINK_wake) &&
	    request_gave_work(conn, out, process, t))
		event->not_measured |= REQUEST_LACK_work_elsewhere;
	if (lacks & REQUEST_LACK_gc || gc_pause_out || conn->read_ns < gc_pause_since_ns)
		event->not_measured |= REQUEST_LACK_gc;
	if (known && t)
		request_fill_peer(event, conn, t);
	if (conn->link == REQUEST_LINK_write && process && conn->begin.at_ns < process->left_ns)
		event->not_measured |= REQUEST_LACK_work_elsewhere;
	else if (conn->link == REQUEST_LINK_same && process && outcome != REQUEST_OUTCOME_answered)
		process->left_ns = out->end.at_ns;
	/* unique since the boot: two requests of one nanosecond have different sockets */
	event->request_id = conn->read_ns ^ (key * 0x9e3779b97f4a7c15ULL) >> 48 << 48;
	event->bytes_in = conn->bytes_in;
	event->bytes_out = conn->bytes_out;
	__builtin_memcpy(event->peer_ip, conn->peer_ip, sizeof(event->peer_ip));
	event->fd = conn->fd;
	event->netns = conn->netns;
	event->connection_request = conn->n;
	event->busy_threads = conn->busy_threads;
	event->has_busy_threads = conn->has_busy_threads;
	event->queue_depth = conn->queue_depth;
	/* requests that wait inside a process for a pool thread are not counted */
	event->has_queue_depth = conn->has_queue_depth && conn->model != REQUEST_MODEL_pool &&
				 !(event->not_measured & REQUEST_LACK_work_elsewhere);
	event->open_requests = conn->open_requests;
	event->server_port = conn->server_port;
	event->peer_port = conn->peer_port;
	event->status = conn->status;
	event->family = conn->family;
	event->method = conn->method;
	event->model = conn->model;
	event->link = conn->link;
	event->end_by = out->killed ? out->end_by : end_by;
	event->outcome = outcome;
}

/* Is there a row? Shorter requests have a token bucket per process. */
static __always_inline bool request_row_wanted(struct request_event *event,
					       struct request_process *process)
{
	__u64 now = event->header.end_ns, earned;

	event->weight = 1;
	if (now - event->header.start_ns >= request_min_ns || !request_row_ns)
		return true;
	if (!process)
		return false;
	earned = now - process->refill_ns;
	if (now > process->refill_ns) {
		process->tokens_ns += earned;
		process->refill_ns = now;
		if (process->tokens_ns > REQUEST_BURST_NS)
			process->tokens_ns = REQUEST_BURST_NS;
	}
	if (process->tokens_ns < request_row_ns) {
		__sync_fetch_and_add(&process->skipped, 1);
		return false;
	}
	__sync_fetch_and_add(&process->tokens_ns, -request_row_ns);
	event->weight = 1 + process->skipped;
	__sync_fetch_and_add(&process->skipped, 1 - event->weight);
	return true;
}

/* Adds the row of the scratch space to the sums. Global: see request_scan_line(). */
__noinline int request_sum_up(void)
{
	__u32 zero = 0;
	struct request_out *out = bpf_map_lookup_elem(&request_outs, &zero);

	if (out && !request_profile_add(&out->event))
		request_stat(STAT_READ_FAIL, 1);
	return 0;
}

/* Sends the row of the scratch space with the request's head. Global: see request_scan_line(). */
__noinline int request_send(__u64 key, __u32 head_state, __u32 head_in_slot)
{
	__u32 zero = 0, n = 0;
	struct request_out *out = bpf_map_lookup_elem(&request_outs, &zero);
	struct request_head *head = request_head_find(key, head_in_slot);
	struct request_tail *tail = NULL;

	if (!out)
		return 0;
	if (head) {
		n = head->n;
		if (n > REQUEST_HEAD_BYTES)
			n = REQUEST_HEAD_BYTES;
		bpf_probe_read_kernel(out->head, n, head->bytes);
		if (head->tail_n)
			tail = bpf_map_lookup_elem(&request_tails, &key);
		out->event.head_n = n;
	}
	if (tail && head) {
		n = head->tail_n;
		if (n > REQUEST_TAIL_BYTES)
			n = REQUEST_TAIL_BYTES;
		bpf_probe_read_kernel(out->head + REQUEST_HEAD_BYTES, sizeof(*tail), tail);
		out->event.tail_n = head->gap ? n : 0;
		n += REQUEST_HEAD_BYTES;
		out->event.head_n = n;
	}
	if (head_state == HEAD_SPLIT)
		out->event.not_measured |= REQUEST_LACK_head_split;
	event_output_in(&request_events, &request_stats, &request_sampling, &out->event,
			sizeof(out->event) + n);
	return 0;
}

/* The connection is ready for the next request. */
static __always_inline void request_connection_reset(struct request_connection *conn, __u64 key,
						     __u64 ended_ns)
{
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);

	if (arrival)
		arrival->open = 0;
	conn->worker = 0;
	conn->ended_ns = ended_ns;
	conn->last.at_ns = 0;
	request_head_free(key, conn->head_in_slot);
	conn->head_in_slot = 0;
	if (conn->head == HEAD_SPLIT)
		bpf_map_delete_elem(&request_tails, &key);
}

/* The open request turned out not to be a request. */
static __always_inline void request_drop(__u64 key, struct request_connection *conn)
{
	request_thread_closes(key, conn, NULL, NULL);
	conn->begin.at_ns = 0;
	conn->n -= conn->counted;
	request_connection_reset(conn, key, conn->ended_ns);
}

/* Ends the open request of a connection. Global: see request_scan_line(). */
__noinline int request_end(__u64 key, __u32 end_by, __u32 outcome, __u32 flags)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	__u32 zero = 0;
	struct request_out *out = bpf_map_lookup_elem(&request_outs, &zero);
	struct request_process *process;
	struct thread *t = NULL; /* the present thread, if it ran the handler */
	__u64 ended_ns = 0;

	if (!conn || !conn->worker || !out)
		return 0;
	process = request_process_of(conn->header.host_pid);
	if (conn->worker == bpf_get_current_task())
		t = thread_find(current_task());
	__sync_fetch_and_add(&out->users, 1);
	if (*(volatile __u64 *)&out->users == 1) {
		request_fill(conn, out, process, t, key, end_by, outcome, flags);
		if (!(flags & REQUEST_END_AT_LAST_WRITE) && conn->worker == bpf_get_current_task())
			ended_ns = out->end.at_ns;
		request_stat(STAT_SEEN, 1);
		request_sum_up();
		if (request_row_wanted(&out->event, process))
			request_send(key, conn->head, conn->head_in_slot);
		else
			request_stat(STAT_FILTERED, 1);
		/* earliest begin of the next request that this thread answers for a reader */
		if (conn->link == REQUEST_LINK_write && t) {
			t->request.answered = out->end;
			t->request.woken[0].at_ns = t->request.woken[1].at_ns = 0;
		}
	} else {
		request_lost();
	}
	/* an answer without a read begins here: see request_open_pipelined() */
	conn->begin = out->end;
	conn->begin.at_ns += out->rest_ns;
	if (conn->worker != bpf_get_current_task() && conn->link != REQUEST_LINK_write)
		conn->begin.at_ns = 0;
	__sync_fetch_and_add(&out->users, -1);
	request_thread_closes(key, conn, process, t);
	request_connection_reset(conn, key, ended_ns ?: bpf_ktime_get_ns());
	return 0;
}

#endif
