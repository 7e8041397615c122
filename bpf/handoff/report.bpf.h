/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reports the row of a connection that was picked up. */
#ifndef UNDERSPAN_HANDOFF_REPORT_BPF_H
#define UNDERSPAN_HANDOFF_REPORT_BPF_H

#include "handoff/connection.bpf.h"
#include "handoff/stack.bpf.h"

static __always_inline bool long_enough(const struct handoff_connection *conn)
{
	return conn->event.header.end_ns - conn->event.header.start_ns >= min_duration_ns;
}

static __always_inline void fill_event(struct handoff_event *event,
				       const struct handoff_connection *conn)
{
	__u64 start = conn->event.header.start_ns, end = conn->event.header.end_ns;
	__u64 ready = conn->first_byte_ns > start ? conn->first_byte_ns : start;

	__builtin_memcpy(event, &conn->event, sizeof(*event));
	event->client_wait_ns = ready - start;
	event->handoff_ns = ready < end ? end - ready : 0;
}

enum row_stack {
	NO_STACK,
	STACK_NOW,  /* the stack of the current thread, which is picking up the connection */
	STACK_HELD, /* a stack kept from the pickup, before the first byte arrived */
};

/* Returns false, with the reason counted, when there is no stack: the caller sends the row. */
static __always_inline bool report_with_stack(struct handoff_connection *conn, enum row_stack of)
{
	struct handoff_row *row = handoff_row_begin();
	__u32 why = STAT_STACK_ROOM;

	if (row) {
		why = of == STACK_NOW ? (__u32)handoff_take_stack(conn->event.header.tid)
				      : conn->stack_missed;
		if (!why) {
			fill_event(&row->event, conn);
			why = handoff_send_row(of == STACK_NOW ? 0 : conn->stack);
		}
		handoff_row_end(row);
	}
	if (why)
		stat_add(why, 1);
	return !why;
}

/* Reports a connection with both a thread and a first byte. */
static __always_inline void report(struct handoff_connection *conn, enum row_stack of)
{
	struct handoff_event *event;

	stat_add(STAT_SEEN, 1);
	if (!long_enough(conn)) {
		stat_add(STAT_FILTERED, 1);
		return;
	}
	if (of != NO_STACK && report_with_stack(conn, of))
		return;
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	fill_event(event, conn);
	event_submit(event);
}

/* Walks the current thread's stack, for a row that is made later. */
static __always_inline void keep_stack(struct handoff_connection *conn)
{
	struct handoff_row *row = handoff_row_begin();
	__u32 why = STAT_STACK_ROOM;

	if (row) {
		why = handoff_take_stack(conn->event.header.tid);
		conn->stack = why ? 0 : handoff_keep_stack();
		if (!why && !conn->stack)
			why = STAT_STACK_ROOM;
		handoff_row_end(row);
	}
	conn->stack_missed = why;
}

/* Reports a connection that was picked up without a byte: the byte has arrived, or never will. */
static __always_inline void report_picked(__u64 sock, struct handoff_connection *conn, __u64 now)
{
	if (bpf_map_delete_elem(&handoff_picked, &sock))
		return; /* another CPU reports the row */
	if (!conn->first_byte_ns)
		conn->first_byte_ns = now;
	conn->state = SERVED;
	if (conn->stack || conn->stack_missed)
		report(conn, STACK_HELD);
	else
		report(conn, NO_STACK);
}

#endif
