/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * As much of HTTP/1 as tells where a request and its answer begin and end: the method, the status
 * line, Content-Length and Transfer-Encoding. The bytes are a client's: anything is possible.
 */
#ifndef UNDERSPAN_REQUEST_HTTP_BPF_H
#define UNDERSPAN_REQUEST_HTTP_BPF_H

#include "lib/compat.bpf.h"
#include "events/request.h"

/* The bytes of a read or write in the present system call. */
struct request_buffer {
	__u64 base;
	__u64 len; /* of the first piece */
	__u64 vec; /* address of the pieces, 0: a single one */
	__u64 n;   /* of pieces */
	__u32 fd;
};

struct user_iovec {
	__u64 base, len;
};
struct user_msghdr {
	__u64 name, name_len;
	__u64 iov, n;
};

static __noinline bool request_call_buffer(struct request_buffer *ret)
{
	struct user_iovec first = {};
	struct user_msghdr msg = {};
	struct user_call call;

	task_user_call(current_task(), &call);
	ret->fd = call.arg1;
	ret->vec = 0;
	switch (call.nr) {
	case NR_read:
	case NR_recvfrom:
	case NR_write:
	case NR_sendto:
		ret->base = call.arg2;
		ret->len = call.arg3;
		return true;
	case NR_readv:
	case NR_writev:
		ret->vec = call.arg2;
		ret->n = call.arg3;
		break;
	case NR_recvmsg:
	case NR_sendmsg:
		if (bpf_probe_read_user(&msg, sizeof(msg), (void *)call.arg2))
			return false;
		ret->vec = msg.iov;
		ret->n = msg.n;
		break;
	default:
		return false;
	}
	if (bpf_probe_read_user(&first, sizeof(first), (void *)ret->vec))
		return false;
	ret->base = first.base;
	ret->len = first.len;
	return true;
}

#define LOWER(x) ((x) | 0x2020202020202020ULL)
#define TEXT8(a, b, c, d, e, f, g, h)                                                              \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

enum { REQUEST_START_BYTES = 16 };

static __always_inline bool request_target_begins(char c)
{
	return c == '/' || c == '*' || c == 'h' || c == 'H';
}

/* The method of a request that begins with these bytes; REQUEST_METHOD_none: no request. */
static __always_inline __u32 request_method_of(const char b[REQUEST_START_BYTES])
{
#define IS(name)                                                                                   \
	(!__builtin_memcmp(b, #name " ", sizeof(#name)) && request_target_begins(b[sizeof(#name)]))
	switch (b[0]) {
	case 'G':
		return IS(GET) ? REQUEST_METHOD_GET : 0;
	case 'P':
		return IS(POST)	   ? REQUEST_METHOD_POST
		       : IS(PUT)   ? REQUEST_METHOD_PUT
		       : IS(PATCH) ? REQUEST_METHOD_PATCH
				   : 0;
	case 'H':
		return IS(HEAD) ? REQUEST_METHOD_HEAD : 0;
	case 'D':
		return IS(DELETE) ? REQUEST_METHOD_DELETE : 0;
	case 'O':
		return IS(OPTIONS) ? REQUEST_METHOD_OPTIONS : 0;
	case 'T':
		return IS(TRACE) ? REQUEST_METHOD_TRACE : 0;
	case 'C':
		return !__builtin_memcmp(b, "CONNECT ", 8) && b[8] > ' ' ? REQUEST_METHOD_CONNECT
									 : 0;
	}
#undef IS
	return 0;
}

/* May a request's first `n` bytes, fewer than 8, be the beginning of a method? */
static __always_inline bool request_method_may_follow(const char b[REQUEST_START_BYTES], __u32 n)
{
	__u64 known = n < 8 ? (1ULL << 8 * n) - 1 : 0, word = LOWER(*(__u64 *)b) & known;

#define MAY(a, b, c, d, e, f, g, h) (word == (TEXT8(a, b, c, d, e, f, g, h) & known))
	return known &&
	       (MAY('g', 'e', 't', ' ', '/', 0, 0, 0) || MAY('p', 'o', 's', 't', ' ', '/', 0, 0) ||
		MAY('h', 'e', 'a', 'd', ' ', '/', 0, 0) || MAY('p', 'u', 't', ' ', '/', 0, 0, 0) ||
		MAY('d', 'e', 'l', 'e', 't', 'e', ' ', 0) ||
		MAY('p', 'a', 't', 'c', 'h', ' ', '/', 0) ||
		MAY('o', 'p', 't', 'i', 'o', 'n', 's', 0));
#undef MAY
}

/* The binary head of uwsgi: 0, its size, 0, and the size of the first name. */
static __always_inline bool request_is_uwsgi(const char b[REQUEST_START_BYTES], __u32 n)
{
	__u32 size = (__u8)b[1] | (__u32)(__u8)b[2] << 8;

	return !b[0] && !b[3] && !b[5] && b[4] >= 3 && b[4] <= 40 && b[6] >= 'A' && b[6] <= 'Z' &&
	       size + 4 <= n;
}

/* The status in "HTTP/1.x SSS"; 0: none. */
static __always_inline __u32 request_status_of(const char b[REQUEST_START_BYTES])
{
	__u32 status;

	if (__builtin_memcmp(b, "HTTP/1.", 7) || b[8] != ' ')
		return 0;
	status = (b[9] - '0') * 100 + (b[10] - '0') * 10 + (b[11] - '0');
	return status >= 100 && status <= 599 ? status : 0;
}

/* ---- the lines of a head ---- */

enum request_head_state {
	HEAD_OPEN,  /* no end of the head seen */
	HEAD_BEGUN, /* so few bytes that it may be no request */
	HEAD_DONE,
	HEAD_SPLIT, /* more than fits, or read in pieces that cannot be joined */
};

struct request_head {
	__u16 n;      /* bytes, up to REQUEST_HEAD_BYTES */
	__u16 tail_n; /* bytes of the entry in request_tails */
	__u32 gap;    /* bytes left out before these */
	char bytes[REQUEST_HEAD_BYTES];
};

struct request_tail {
	char bytes[REQUEST_TAIL_BYTES];
};

/* Heads of open requests. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_head);
} request_heads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_tail);
} request_tails SEC(".maps");

/* Scratch space: the head of a request or an answer, and what its lines say. */
struct request_scan {
	__u64 users; /* programs using it: kernels since 7.0 may preempt a program */
	__u64 length;
	__u32 end; /* bytes of the head, the blank line included; 0: not at its end */
	__u8 has_length, chunked, torn;
	__u8 pad;
	struct request_head head;
	char room[32]; /* a look-ahead may go beyond the head */
	struct request_tail tail;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request_scan);
} request_scans SEC(".maps");

/* Claims this CPU's scratch space; NULL: a preempted program holds it. */
static __always_inline struct request_scan *request_scan_begin(void)
{
	__u32 zero = 0;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);

	if (!scan)
		return NULL;
	__sync_fetch_and_add(&scan->users, 1);
	if (*(volatile __u64 *)&scan->users == 1)
		return scan;
	__sync_fetch_and_add(&scan->users, -1);
	return NULL;
}

static __always_inline void request_scan_end(struct request_scan *scan)
{
	__sync_fetch_and_add(&scan->users, -1);
}

/*
 * Reads the line that begins at `at`. Loops and their bodies are global functions, which the
 * verifier explores once.
 */
__noinline int request_scan_line(__u32 at)
{
	__u32 zero = 0;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);
	__u64 word, length = 0;
	bool digits = false;
	char *line;

	if (!scan || at >= REQUEST_HEAD_BYTES - 40)
		return 0;
	line = scan->head.bytes + at;
	word = LOWER(*(__u64 *)line);
	if (word == TEXT8('t', 'r', 'a', 'n', 's', 'f', 'e', 'r')) {
		if (LOWER(*(__u64 *)(line + 8)) != TEXT8('-', 'e', 'n', 'c', 'o', 'd', 'i', 'n') ||
		    line[17] != ':')
			return 0;
		line += line[18] == ' ' ? 19 : 18;
		word = LOWER(*(__u64 *)line) << 8;
		scan->chunked |= word == TEXT8(0, 'c', 'h', 'u', 'n', 'k', 'e', 'd');
		return 0;
	}
	if (word != TEXT8('c', 'o', 'n', 't', 'e', 'n', 't', '-') ||
	    LOWER(*(__u64 *)(line + 8)) << 8 != TEXT8(0, 'l', 'e', 'n', 'g', 't', 'h', ':'))
		return 0;
	line += line[15] == ' ' ? 16 : 15;
	for (int i = 0; i < 16; i++) {
		__u8 digit = line[i] - '0';

		if (digit > 9)
			break;
		length = length * 10 + digit;
		digits = true;
	}
	scan->length = length;
	scan->has_length |= digits;
	return 0;
}

/* Reads the line at `at` of `n` bytes. Returns whether it is blank, which ends the head. */
__noinline int request_scan_begun(__u32 at, __u32 n)
{
	__u32 zero = 0;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);
	char c, next;

	if (!scan || at >= n || at >= REQUEST_HEAD_BYTES)
		return 0;
	c = scan->head.bytes[at];
	next = at + 1 < n ? scan->head.bytes[at + 1] : 0;
	if (c == '\n' || (c == '\r' && next == '\n')) {
		scan->end = at + (c == '\n' ? 1 : 2);
		return 1;
	}
	if ((c | 0x20) == 'c' || (c | 0x20) == 't')
		request_scan_line(at);
	return 0;
}

#define EACH_BYTE(b) ((b) * 0x0101010101010101ULL)

/* The highest bit of each byte that is a newline. */
static __always_inline __u64 request_newlines(__u64 word)
{
	__u64 other = word ^ EACH_BYTE('\n');

	return ~(((other & EACH_BYTE(0x7fULL)) + EACH_BYTE(0x7fULL)) | other | EACH_BYTE(0x7fULL));
}

/* The number of bytes up to the first one whose highest bit is set, that one included. */
static __always_inline __u32 request_bytes_to(__u64 found)
{
	return (((found & -found) - 1) & EACH_BYTE(1)) * EACH_BYTE(1) >> 56;
}

/*
 * Reads the lines of the first `n` bytes in the scratch space, which begin with a line. Looks for
 * newlines in eight bytes at a time: byte by byte, an answer's head of 200 bytes took 0.6 us.
 */
__noinline int request_scan_head(__u32 n)
{
	__u32 zero = 0;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);
	__u64 found;
	__u32 last;

	if (!scan)
		return 0;
	scan->end = scan->torn = 0;
	if (!n || n > REQUEST_HEAD_BYTES || request_scan_begun(0, n))
		return 0;
	for (__u32 i = 0; i < REQUEST_HEAD_BYTES; i += 8) {
		if (i >= n)
			break;
		found = request_newlines(*(__u64 *)(scan->head.bytes + i));
		for (int k = 0; k < 8 && found; k++) {
			if (request_scan_begun(i + request_bytes_to(found), n))
				return 0;
			found &= found - 1;
		}
	}
	last = n - 1;
	barrier_var(last); /* keeps the check, which the verifier needs */
	scan->torn = last < REQUEST_HEAD_BYTES && scan->head.bytes[last] != '\n';
	return 0;
}

/* Does the write of `n` bytes end with the last chunk? */
static __always_inline bool request_ends_chunked(const struct request_buffer *buffer, __u64 n)
{
	struct user_iovec piece = { buffer->base, buffer->len };
	char b[8] = {};

	for (__u32 i = 1; i < 16 && buffer->vec && n > piece.len; i++) {
		n -= piece.len;
		if (i >= buffer->n || bpf_probe_read_user(&piece, sizeof(piece),
							  (void *)buffer->vec + i * sizeof(piece)))
			return false;
	}
	if (n < 5 || n > piece.len)
		return false;
	if (n == 5)
		return !bpf_probe_read_user(b, 5, (void *)piece.base) &&
		       !__builtin_memcmp(b, "0\r\n\r\n", 5);
	/* a chunk may end with such bytes: those before belong to it */
	return n >= 7 && !bpf_probe_read_user(b, 7, (void *)(piece.base + n - 7)) &&
	       !__builtin_memcmp(b, "\r\n0\r\n\r\n", 7);
}

#endif
