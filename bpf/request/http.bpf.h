/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of HTTP/1 that delimits requests and answers: method, status line, Content-Length,
 * Transfer-Encoding. The bytes come from a client: untrusted.
 */
#ifndef UNDERSPAN_REQUEST_HTTP_BPF_H
#define UNDERSPAN_REQUEST_HTTP_BPF_H

#include "lib/compat.bpf.h"
#include "events/request.h"

/* The bytes of a read or write in the present system call. */
struct request_buffer {
	__u64 base;
	__u64 len; /* of the first piece */
	__u64 vec; /* address of the pieces, 0: a single piece */
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

/* The method at the begin of `b`; REQUEST_METHOD_none: not a request. */
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

/* The characters of a token, RFC 9110 5.6.2, as bits. */
static __always_inline bool request_is_token(__u8 c)
{
	const __u64 low = 0x03ff6cfa00000000ULL, high = 0x57ffffffc7fffffeULL;

	return c < 128 && (c < 64 ? low >> c : high >> (c - 64)) & 1;
}

enum { REQUEST_LONGEST_METHOD = 20 };

enum request_start {
	START_NONE,
	START_BLANK,   /* newlines, which servers leave out, or a PROXY head before a request */
	START_CUT,     /* the bytes are too few to tell */
	START_REQUEST, /* a method and a target */
	START_HTTP2,
	START_TLS,
	START_UNSEEN, /* the bytes are not in the memory of a call that is known */
};

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

/* The binary head of uwsgi: 0, size, 0, and the size of the first name. */
static __always_inline bool request_is_uwsgi(const char b[REQUEST_START_BYTES], __u32 n)
{
	__u32 size = (__u8)b[1] | (__u32)(__u8)b[2] << 8;

	return !b[0] && !b[3] && !b[5] && b[4] >= 3 && b[4] <= 40 && b[6] >= 'A' && b[6] <= 'Z' &&
	       size + 4 <= n;
}

/* A record of TLS: a handshake, or on an old connection any other. */
static __always_inline bool request_is_tls(const char b[REQUEST_START_BYTES], __u32 n)
{
	return n >= 3 && b[0] >= 0x14 && b[0] <= 0x17 && b[1] == 3 && (__u8)b[2] <= 4;
}

/* A whole frame HEADERS of HTTP/2 (RFC 9113, 6.2), with which a request on an old connection
 * begins. */
static __always_inline bool request_is_http2(const char b[REQUEST_START_BYTES], __u32 n)
{
	enum { FRAME_HEAD = 9, HEADERS = 1, END_HEADERS = 4, FLAGS = 0x2d };
	__u32 size = (__u32)(__u8)b[1] << 8 | (__u8)b[2];

	return !b[0] && b[3] == HEADERS && b[4] & END_HEADERS && !(b[4] & ~FLAGS) && !b[5] &&
	       size && size + FRAME_HEAD <= n;
}

/* What is told from bytes inside of a connection: START_TLS, START_HTTP2 or START_NONE. */
static __always_inline __u32 request_foreign_of(const char b[REQUEST_START_BYTES], __u32 n)
{
	if (request_is_tls(b, n))
		return START_TLS;
	return request_is_http2(b, n) ? START_HTTP2 : START_NONE;
}

/*
 * The length of a head of the PROXY protocol, in which a load balancer names its client before the
 * first request; 0: none. Global: a loop.
 */
__noinline int request_proxy_head(__u64 base, __u32 got)
{
	enum { HEAD = 16, LONGEST_LINE = 107, LONGEST = 2048 };
	char b[HEAD] = {}, last[2] = {};
	__u32 n = 0;

	if (got < HEAD - 1 || bpf_probe_read_user(b, HEAD - 1, (void *)base))
		return 0;
	if (got >= HEAD && !__builtin_memcmp(b, "\r\n\r\n\0\r\nQUIT\n", 12)) {
		bpf_probe_read_user(last, sizeof(last), (void *)(base + HEAD - 2));
		n = HEAD + ((__u32)(__u8)last[0] << 8 | (__u8)last[1]);
		return n <= got && n <= LONGEST ? n : 0;
	}
	/* a method may be named so */
	if (__builtin_memcmp(b, "PROXY TCP", 9) && __builtin_memcmp(b, "PROXY UNKNOWN", 13))
		return 0;
	for (n = HEAD - 1; n <= LONGEST_LINE && n <= got; n++) {
		if (bpf_probe_read_user(last, sizeof(last), (void *)(base + n - 2)))
			return 0;
		if (last[0] == '\r' && last[1] == '\n')
			return n;
	}
	return 0;
}

enum {
	REQUEST_STATUS_BYTES = 13, /* "HTTP/1.1 200 " */
	REQUEST_VERSION_BYTES = 5, /* "HTTP/" */
	STATUS_NONE = 0,
	STATUS_CUT = 1, /* the bytes are too few to tell */
};

/* The status in "HTTP/1.x SSS", followed by a space or the line's end. `n`: known bytes of `b`. */
static __always_inline __u32 request_status_of(const char *b, __u32 n)
{
	__u8 d[3] = { b[9] - '0', b[10] - '0', b[11] - '0' };
	__u64 start = *(__u64 *)b ^ TEXT8('H', 'T', 'T', 'P', '/', '1', '.', 0);
	__u32 status = d[0] * 100 + d[1] * 10 + d[2];

	if (!n)
		return STATUS_CUT;
	if (start << (n < 8 ? 8 * (8 - n) : 8))
		return STATUS_NONE;
	if ((n > 7 && (__u8)(b[7] - '0') > 9) || (n > 8 && b[8] != ' '))
		return STATUS_NONE;
	if ((n > 9 && (!d[0] || d[0] > 9)) || (n > 10 && d[1] > 9) || (n > 11 && d[2] > 9))
		return STATUS_NONE;
	if (n < REQUEST_STATUS_BYTES)
		return STATUS_CUT;
	return b[12] == ' ' || b[12] == '\r' || b[12] == '\n' ? status : STATUS_NONE;
}

enum request_head_state {
	HEAD_OPEN,  /* no end of the head seen */
	HEAD_BEGUN, /* too few bytes to be sure of a request */
	HEAD_DONE,
	HEAD_SPLIT, /* does not fit, or read in pieces that cannot be joined */
};

#endif
