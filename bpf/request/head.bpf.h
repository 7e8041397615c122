/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A request's head: what is kept of the bytes that a request begins with. */
#ifndef UNDERSPAN_REQUEST_HEAD_BPF_H
#define UNDERSPAN_REQUEST_HEAD_BPF_H

#include "request/report.bpf.h"

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
		scan->framing = 0;
		request_scan_head(n);
		if (scan->end) {
			state = HEAD_DONE;
			if (scan->framing & ~FRAMING_LENGTH)
				*ret_left = ~0ULL;
			else if (scan->framing && scan->length > got - scan->end)
				*ret_left = scan->length - (got - scan->end);
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

#endif
