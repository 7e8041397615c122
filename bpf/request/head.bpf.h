/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A request's head: the first bytes, kept for the row, and the head's end. */
#ifndef UNDERSPAN_REQUEST_HEAD_BPF_H
#define UNDERSPAN_REQUEST_HEAD_BPF_H

#include "request/chunks.bpf.h"
#include "request/report.bpf.h"

/* Takes up to `n` bytes of a chunked body. Returns how many. Global: a loop. */
__noinline int request_body_chunks(__u64 key, __u64 base, __u32 n)
{
	enum { STEPS = 16 };
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	__u32 taken = 0, state;

	if (!conn)
		return n;
	for (int i = 0; i < STEPS && taken < n; i++) {
		if (conn->chunks[DIRECTION_IN].state >= CHUNK_ENDED)
			break;
		taken += request_chunks_take(key, DIRECTION_IN, base + taken, n - taken);
	}
	state = conn->chunks[DIRECTION_IN].state;
	if (state >= CHUNK_ENDED)
		conn->body = state == CHUNK_ENDED ? BODY_NONE : BODY_UNKNOWN;
	else if (taken < n)
		conn->body = BODY_SKIPPED;
	return taken;
}

/* `n` bytes of the request's body or behind the body are read. Returns how many are the body's. */
static __always_inline __u32 request_body_take(__u64 key, struct request_connection *conn,
					       __u64 base, __u32 n)
{
	struct request_chunks *body = &conn->chunks[DIRECTION_IN];
	__u32 taken = n;

	if (conn->body == BODY_LENGTH) {
		if (body->left < n)
			taken = body->left;
		body->left -= taken;
		if (!body->left)
			conn->body = BODY_NONE;
	} else if (conn->body == BODY_CHUNKED) {
		taken = request_body_chunks(key, base, n);
	}
	if (conn->body == BODY_SKIPPED) {
		taken = n;
		request_chunks_end(key, DIRECTION_IN, base, n);
	}
	return conn->body ? n : taken;
}

/*
 * The head ends; the first `n` bytes of the body are at `base`. Selects how the body's end is
 * found.
 */
static __always_inline void request_head_ends(__u64 key, struct request_connection *conn,
					      const struct request_scan *scan, __u64 base, __u32 n)
{
	struct request_chunks *body = &conn->chunks[DIRECTION_IN];

	conn->framing = conn->line_n = 0;
	conn->head_ended = 1;
	if (conn->head == HEAD_OPEN)
		conn->head = HEAD_DONE;
	if (!scan->framing) {
		conn->body = BODY_NONE;
	} else if (scan->framing == FRAMING_LENGTH) {
		conn->body = scan->length > n ? BODY_LENGTH : BODY_NONE;
		body->left = scan->length - n;
	} else if (scan->framing == FRAMING_CHUNKED) {
		body->left = 0;
		body->state = CHUNK_SIZE;
		conn->last_chunk_n[DIRECTION_IN] = 0;
		conn->body = BODY_CHUNKED;
		request_body_take(key, conn, base, n);
	} else {
		conn->body = BODY_UNKNOWN; /* servers differ */
	}
}

/*
 * Looks for the head's end in the next piece of `n` bytes. Returns how many bytes remain to be
 * searched. Global: called from a loop.
 */
__noinline int request_head_piece(__u64 key, __u64 base, __u32 n)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_scan *scan = request_scan_begin();
	__u32 len = n < REQUEST_PIECE_BYTES ? n : REQUEST_PIECE_BYTES, kept, left = 0;

	if (!conn || !scan)
		goto out;
	kept = conn->line_n;
	scan->framing = conn->framing;
	scan->length = conn->chunks[DIRECTION_IN].left;
	if ((kept && !request_line_restore(key, scan, kept)) ||
	    !request_scan_bytes(scan, kept, base, len)) {
		conn->body = BODY_UNKNOWN;
	} else if (scan->end) {
		len = scan->end - kept;
		request_head_ends(key, conn, scan, base + len, n - len);
	} else {
		conn->framing = scan->framing;
		conn->chunks[DIRECTION_IN].left = scan->length;
		conn->line_n = request_line_keep(key, scan, kept + len);
		left = n - len;
	}
out:
	if (scan)
		request_scan_end(scan);
	return left;
}

/* Looks for the head's end in further bytes, 64 KB at most. Global: a loop. */
__noinline int request_head_lines(__u64 key, __u64 base, __u32 n)
{
	enum { PIECES = 72 };
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	__u32 left = n;

	for (int i = 0; i < PIECES && left; i++)
		left = request_head_piece(key, base + n - left, left);
	if (left && conn)
		conn->body = BODY_UNKNOWN;
	return 0;
}

/*
 * Keeps the first read of a request, `got` bytes, as the head. `read`: REQUEST_BEGAN_READ. Returns
 * how many bytes at the read's end were not searched for the head's end.
 */
static __always_inline __u32 request_head_keep(__u64 key, struct request_connection *conn,
					       const struct request_buffer *buffer, __u32 got,
					       bool read)
{
	struct request_scan *scan = read ? request_scan_claimed() : request_scan_begin();
	__u32 whole = got < buffer->len ? got : buffer->len, n = whole, tail_n;
	bool ended, in_slot;

	conn->head = HEAD_SPLIT;
	if (!scan)
		return 0;
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n > REQUEST_HEAD_BYTES)
		n = REQUEST_HEAD_BYTES;
	barrier_var(n);
	scan->head.n = n;
	scan->head.tail_n = 0;
	scan->head.gap = 0;
	if (n > REQUEST_HEAD_BYTES ||
	    (!read && bpf_probe_read_user(scan->head.bytes, n, (void *)buffer->base)))
		goto out;
	if (whole > n) {
		tail_n = whole - n;
		if (tail_n > REQUEST_TAIL_BYTES) {
			scan->head.gap = tail_n - REQUEST_TAIL_BYTES;
			tail_n = REQUEST_TAIL_BYTES;
		}
		barrier_var(tail_n);
		if (tail_n <= REQUEST_TAIL_BYTES &&
		    !bpf_probe_read_user(scan->tail.bytes, tail_n,
					 (void *)(buffer->base + whole - tail_n)) &&
		    !bpf_map_update_elem(&request_tails, &key, &scan->tail, BPF_ANY))
			scan->head.tail_n = tail_n;
	}
	if (!request_head_put(key, &scan->head, n, &in_slot))
		goto out;
	conn->head_in_slot = in_slot;
	conn->head = HEAD_OPEN;
	if (!n || !scan->head.bytes[0]) { /* uwsgi */
		conn->head = HEAD_DONE;
		conn->head_ended = 1;
		goto out;
	}
	scan->framing = 0;
	request_scan_head(n);
	ended = scan->end;
	if (ended) {
		request_head_ends(key, conn, scan, buffer->base + scan->end, whole - scan->end);
	} else {
		conn->framing = scan->framing;
		conn->chunks[DIRECTION_IN].left = scan->length;
		conn->line_n = request_line_keep(key, scan, n);
	}
	if (got > whole && conn->body == BODY_LENGTH) /* in further pieces */
		request_body_take(key, conn, 0, got - whole);
	else if (got > whole && conn->body)
		conn->body = BODY_UNKNOWN;
	request_scan_end(scan);
	return ended ? 0 : whole - n;
out:
	request_scan_end(scan);
	return 0;
}

/* A further piece of the head. Returns whether all of it is kept. */
static __always_inline bool request_head_append(__u64 key, struct request_connection *conn,
						const struct request_buffer *buffer, __u32 got)
{
	enum { PIECE = 256, PIECES = 4 };
	struct request_head *head = request_head_find(key, conn->head_in_slot);
	__u32 left = got < buffer->len ? got : buffer->len, at, n;
	__u64 from = buffer->base;

	if (!request_has_lengths || !head || head->tail_n)
		return false;
	at = head->n;
	for (int i = 0; i < PIECES && left; i++) {
		n = left < PIECE ? left : PIECE;
		if (at > REQUEST_HEAD_BYTES - PIECE ||
		    bpf_probe_read_user(head->bytes + at, n, (void *)from))
			break;
		at += n;
		from += n;
		left -= n;
	}
	head->n = at;
	return !left;
}

/*
 * Classifies the `n` bytes at `base`, read from a server's connection; `base` 0: the kept head.
 * Global: a loop.
 */
__noinline int request_start_of(__u64 key, __u64 base, __u32 n)
{
	struct request_connection *conn;
	struct request_head *head = NULL;
	char b[32] = {};
	__u32 i;

	if (n > REQUEST_LONGEST_METHOD + 2)
		n = REQUEST_LONGEST_METHOD + 2;
	if (!base) {
		conn = bpf_map_lookup_elem(&request_connections, &key);
		if (conn)
			head = request_head_find(key, conn->head_in_slot);
		if (!head)
			return START_NONE;
		__builtin_memcpy(b, head->bytes, sizeof(b));
	}
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n > sizeof(b) || (base && bpf_probe_read_user(b, n, (void *)base)))
		return START_NONE;
	for (i = 0; i < REQUEST_LONGEST_METHOD + 2; i++) {
		if (i >= n)
			return START_CUT;
		if (!request_is_token(b[i]))
			break;
	}
	if (!i || i > REQUEST_LONGEST_METHOD || b[i & 31] != ' ')
		return START_NONE;
	if (i == 3 && !__builtin_memcmp(b, "PRI", 3))
		return START_HTTP2;
	if (i + 1 >= n)
		return START_CUT;
	if (i == 7 && !__builtin_memcmp(b, "CONNECT", 7))
		return b[8] > ' ' ? START_REQUEST : START_NONE;
	return request_target_begins(b[(i + 1) & 31]) ? START_REQUEST : START_NONE;
}

/* Classifies a head again after too few first bytes. False: not a request. */
static __always_inline bool request_head_begins(__u64 key, struct request_connection *conn)
{
	struct request_head *head = request_head_find(key, conn->head_in_slot);
	__u32 start;

	if (!head)
		return false;
	start = request_start_of(key, 0, head->n);
	if (start == START_REQUEST) {
		conn->method = request_method_of(head->bytes) ?: REQUEST_METHOD_other;
		conn->head = conn->head_ended ? HEAD_DONE : HEAD_OPEN;
	}
	return start == START_REQUEST || start == START_CUT;
}

#endif
