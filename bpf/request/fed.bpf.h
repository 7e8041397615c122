/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* More of an open request was read: the rest of its head or body. */
#ifndef UNDERSPAN_REQUEST_FED_BPF_H
#define UNDERSPAN_REQUEST_FED_BPF_H

#include "request/connection.bpf.h"

/* More of the loop's last request was read: the loop may hand it on now. */
static __always_inline void request_may_give(struct thread *t,
					     const struct request_connection *conn)
{
	struct request_sums *sums = &t->request;

	if (conn->nth == sums->reads && sums->settled_reads == sums->reads && !conn->receiver &&
	    sums->unsure_ns < conn->read_ns)
		sums->settled_reads--;
}

/*
 * More of a body was read. Since the read before, the loop was idle for `idle_ns`: for the client,
 * until bytes came: conn->body_wait_ns. A loop that does not read them at once waits for something
 * else then. Global: for a separate stack.
 */
__noinline int request_body_waited(__u64 key, __u64 idle_ns)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_arrival *arrival = bpf_map_lookup_elem(&request_arrivals, &key);
	__u64 since, came = arrival ? arrival->first_byte_ns : 0;

	if (!conn)
		return 0;
	since = conn->fed_ns ?: conn->read_ns;
	if (came <= since || came > bpf_ktime_get_ns())
		return 0;
	conn->body_wait_ns += came - since < idle_ns ? came - since : idle_ns;
	return 0;
}

/* More of an open request was read. */
static __always_inline void request_fed(__u64 key, struct request_connection *conn)
{
	struct thread *t = NULL;
	__u64 idle_ns;

	if (conn->worker == bpf_get_current_task())
		t = thread_find(current_task());
	if (!t)
		return;
	if (!conn->receiver) { /* a pool's thread does not wait for the rest of the body */
		idle_ns = t->request.parts[REQUEST_await] -
			  (conn->fed_await_ns ?: conn->begin.parts[REQUEST_await]);
		if (conn->body && conn->body < BODY_UNKNOWN)
			request_body_waited(key, idle_ns);
		conn->fed_await_ns = t->request.parts[REQUEST_await];
	}
	request_may_give(t, conn);
	if (!conn->head_ended)
		conn->head_wait_ns = conn->fed_await_ns - conn->begin.parts[REQUEST_await];
	t->request.read_ns = conn->fed_ns = bpf_ktime_get_ns();
}

#endif
