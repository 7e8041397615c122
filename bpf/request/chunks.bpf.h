/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Chunked bodies, followed by the sizes of their chunks. */
#ifndef UNDERSPAN_REQUEST_CHUNKS_BPF_H
#define UNDERSPAN_REQUEST_CHUNKS_BPF_H

#include "request/connection.bpf.h"
#include "request/http.bpf.h"

enum { REQUEST_LAST_CHUNK = 7 }; /* bytes, with the newline before */

static __always_inline __u32 request_hex(char c)
{
	__u8 digit = c - '0', letter = (c | 0x20) - 'a';

	return digit <= 9 ? digit : letter <= 5 ? letter + 10U : 16;
}

/* Takes a byte outside of a chunk's data. */
static __always_inline void request_chunk_byte(struct request_chunks *chunks, char c)
{
	__u32 digit = request_hex(c);

	if (chunks->state <= CHUNK_DIGITS) {
		if (digit < 16 && !(chunks->left >> 48)) {
			chunks->left = chunks->left << 4 | digit;
			chunks->state = CHUNK_DIGITS;
			return;
		}
		if (chunks->state == CHUNK_SIZE ||
		    (c != '\r' && c != '\n' && c != ';' && c != ' ' && c != '\t')) {
			chunks->state = CHUNK_BAD;
			return;
		}
		chunks->state = CHUNK_REST;
	}
	if (chunks->state == CHUNK_REST) {
		if (c != '\n')
			return;
		chunks->state = chunks->left ? CHUNK_DATA : CHUNK_TRAILER;
		if (chunks->left)
			chunks->left += 2;
	} else if (chunks->state == CHUNK_TRAILER) {
		chunks->state = c == '\n' ? CHUNK_ENDED : c == '\r' ? CHUNK_TRAILER : CHUNK_LINE;
	} else if (c == '\n') {
		chunks->state = CHUNK_TRAILER;
	}
}

/* Takes the bytes up to the next chunk's data, 16 at most. Returns how many. Global: a loop. */
__noinline int request_chunk_line(__u64 key, __u32 direction, __u64 base, __u32 n)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_chunks
		*chunks; /* in the map: on the stack the verifier follows each state */
	__u64 words[2] = {};
	__u32 i;

	if (!conn)
		return 0;
	chunks = &conn->chunks[direction & 1];
	if (n > sizeof(words))
		n = sizeof(words);
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n > sizeof(words) || bpf_probe_read_user(words, n, (void *)base)) {
		chunks->state = CHUNK_BAD;
		return 0;
	}
	for (i = 0; i < sizeof(words) && i < n; i++) {
		if (chunks->state == CHUNK_DATA || chunks->state >= CHUNK_ENDED)
			break;
		request_chunk_byte(chunks, words[0]);
		words[0] = words[0] >> 8 | words[1] << 56;
		words[1] >>= 8;
	}
	return i;
}

/*
 * Takes up to `n` bytes of a body. Returns how many: fewer if the body has ended or is invalid, or
 * with more chunks than a step takes. Global: a loop.
 */
__noinline int request_chunks_take(__u64 key, __u32 direction, __u64 base, __u32 n)
{
	enum { CHUNKS = 256 };
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_chunks *chunks;
	__u32 taken = 0, more;

	if (!conn)
		return 0;
	chunks = &conn->chunks[direction & 1];
	for (int i = 0; i < 2 * CHUNKS && taken < n; i++) {
		if (chunks->state >= CHUNK_ENDED)
			return taken;
		if (chunks->state == CHUNK_DATA) {
			more = n - taken < chunks->left ? n - taken : chunks->left;
			chunks->left -= more;
			if (!chunks->left)
				chunks->state = CHUNK_SIZE;
		} else {
			more = request_chunk_line(key, direction, base + taken, n - taken);
		}
		taken += more;
	}
	return taken;
}

/*
 * How many bytes of the last chunk, with the newline before, end with `c`? `have`: before `c`.
 * These bytes without the newline may be a chunk's data.
 */
static __always_inline __u8 request_last_chunk(__u8 have, char c)
{
	if (c == '\r')
		return have == 3 ? 4 : have == 5 ? 6 : 1;
	if (c == '\n')
		return have == 1 ? 2 : have == 4 ? 5 : have == 6 ? REQUEST_LAST_CHUNK : 0;
	return c == '0' && (have == 2 || have == 5) ? 3 : 0;
}

/* A body goes on with the `n` bytes at `base`, in which no chunk is followed. Global: a loop. */
__noinline int request_chunks_end(__u64 key, __u32 direction, __u64 base, __u32 n)
{
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	__u32 last = n < REQUEST_LAST_CHUNK ? n : REQUEST_LAST_CHUNK;
	__u64 bytes = 0;
	__u8 *have;

	if (!conn)
		return 0;
	have = &conn->last_chunk_n[direction & 1];
	barrier_var(last); /* 5.10 knows the bounds of the compared register alone */
	if (last > sizeof(bytes) || bpf_probe_read_user(&bytes, last, (void *)(base + n - last))) {
		*have = 0;
		return 0;
	}
	for (__u32 i = 0; i < REQUEST_LAST_CHUNK && i < last; i++) {
		*have = request_last_chunk(*have, bytes);
		bytes >>= 8;
	}
	return 0;
}

/*
 * Does the write of `n` bytes, in which no chunk is followed, end with the last chunk? Global: a
 * loop.
 */
__noinline int request_ends_chunked(__u64 key, __u32 n)
{
	enum { PIECES = 1024 }; /* UIO_MAXIOV of include/uapi/linux/uio.h */
	struct request_connection *conn = bpf_map_lookup_elem(&request_connections, &key);
	struct request_buffer buffer = {};
	struct user_iovec piece;
	__u64 left = n;

	if (!conn)
		return false;
	request_call_buffer(&buffer);
	piece.base = buffer.base;
	piece.len = buffer.len;
	for (__u32 i = 1; i < PIECES && buffer.vec && left > piece.len; i++) {
		request_chunks_end(key, DIRECTION_OUT, piece.base, piece.len);
		left -= piece.len;
		if (i >= buffer.n || bpf_probe_read_user(&piece, sizeof(piece),
							 (void *)buffer.vec + i * sizeof(piece)))
			break;
	}
	if (left > piece.len) { /* the bytes are not in the process's memory */
		conn->last_chunk_n[DIRECTION_OUT] = 0;
		return false;
	}
	request_chunks_end(key, DIRECTION_OUT, piece.base, left);
	return conn->last_chunk_n[DIRECTION_OUT] == REQUEST_LAST_CHUNK;
}

#endif
