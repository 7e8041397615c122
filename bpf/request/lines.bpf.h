/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The lines of a head, which may arrive in pieces: the head's end, and the body's framing. */
#ifndef UNDERSPAN_REQUEST_LINES_BPF_H
#define UNDERSPAN_REQUEST_LINES_BPF_H

#include "request/heads.bpf.h"
#include "request/http.bpf.h"

struct request_tail {
	char bytes[REQUEST_TAIL_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_tail);
} request_tails SEC(".maps");

/* The body's framing according to the head. */
enum request_framing {
	FRAMING_LENGTH = 1,
	FRAMING_CHUNKED = 2,
	FRAMING_UNCLEAR = 4, /* bad lengths or unknown encodings: parsers differ */
	FRAMING_LAST = 8, /* the last line is one of these headers, and may go on (RFC 9112 5.2) */
};

/* Scratch space: the head of a request or an answer, and the result of parsing. */
struct request_scan {
	__u64 users; /* programs in use of the space: kernels since 7.0 may preempt a program */
	__u64 length;
	__u32 end;  /* bytes of the head, including the blank line; 0: the end was not seen */
	__u32 line; /* begin of the incomplete last line */
	__u32 framing;
	__u32 pad;
	struct request_head head;
	char room[64]; /* a look-ahead may go beyond the head */
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

/* The scratch space that the present program has claimed. */
static __always_inline struct request_scan *request_scan_claimed(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&request_scans, &zero);
}

static __always_inline void request_scan_end(struct request_scan *scan)
{
	__sync_fetch_and_add(&scan->users, -1);
}

/* Does the value of a header end before `c`? */
static __always_inline bool request_value_ends(char c)
{
	return c == '\r' || c == '\n' || c == ' ' || c == '\t';
}

/* The number at `text`, behind some spaces, is the body's length. */
static __always_inline void request_scan_length(struct request_scan *scan, const char *text)
{
	__u64 length = 0;
	__u32 digits = 0;
	bool ended = false;

	for (int i = 0; i < 20; i++) {
		__u8 digit = text[i] - '0';

		if (digit <= 9) {
			length = length * 10 + digit;
			digits++;
			continue;
		}
		if (digits || (text[i] != ' ' && text[i] != '\t')) {
			ended = request_value_ends(text[i]);
			break;
		}
	}
	if (!ended || !digits || (scan->framing & FRAMING_LENGTH && scan->length != length)) {
		scan->framing |= FRAMING_UNCLEAR;
		return;
	}
	scan->length = length;
	scan->framing |= FRAMING_LENGTH;
}

/*
 * Reads the complete line at `at`. Loops and loop bodies are global functions, which the verifier
 * explores once.
 */
__noinline int request_scan_line(__u32 at)
{
	__u32 zero = 0;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);
	__u64 word;
	char *line, end;

	if (!scan || at >= REQUEST_HEAD_BYTES)
		return 0;
	line = scan->head.bytes + at;
	word = LOWER(*(__u64 *)line);
	if (word == TEXT8('t', 'r', 'a', 'n', 's', 'f', 'e', 'r')) {
		if (LOWER(*(__u64 *)(line + 8)) != TEXT8('-', 'e', 'n', 'c', 'o', 'd', 'i', 'n') ||
		    (line[16] | 0x20) != 'g')
			return 0;
		end = line[17];
		line += line[18] == ' ' ? 19 : 18;
		word = LOWER(*(__u64 *)line) << 8;
		scan->framing |= FRAMING_LAST;
		scan->framing |= end == ':' && request_value_ends(line[7]) &&
						 word == TEXT8(0, 'c', 'h', 'u', 'n', 'k', 'e', 'd')
					 ? FRAMING_CHUNKED
					 : FRAMING_UNCLEAR;
		return 0;
	}
	if (word != TEXT8('c', 'o', 'n', 't', 'e', 'n', 't', '-') ||
	    LOWER(*(__u64 *)(line + 8)) << 16 != TEXT8(0, 0, 'l', 'e', 'n', 'g', 't', 'h'))
		return 0;
	if (line[14] == ':' || request_value_ends(line[14]))
		scan->framing |= FRAMING_LAST;
	if (line[14] == ':')
		request_scan_length(scan, line + 15);
	else if (request_value_ends(line[14]))
		scan->framing |= FRAMING_UNCLEAR;
	return 0;
}

/* A line ends before `next`. Returns true for a blank line, the head's end. */
__noinline int request_scan_ended(__u32 next)
{
	__u32 zero = 0, at;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);
	char c;

	if (!scan)
		return 0;
	at = scan->line;
	if (at >= next || at >= REQUEST_HEAD_BYTES)
		return 0;
	scan->line = next;
	c = scan->head.bytes[at];
	if (next - at == 1 || (next - at == 2 && c == '\r')) {
		scan->framing &= ~FRAMING_LAST;
		scan->end = next;
		return 1;
	}
	/* servers differ in whether the value goes on */
	if ((c == ' ' || c == '\t') && scan->framing & FRAMING_LAST)
		scan->framing |= FRAMING_UNCLEAR;
	scan->framing &= ~FRAMING_LAST;
	if ((c | 0x20) == 'c' || (c | 0x20) == 't')
		request_scan_line(at);
	return 0;
}

#define EACH_BYTE(b) ((b) * 0x0101010101010101ULL)

/* The highest bit of each newline byte. */
static __always_inline __u64 request_newlines(__u64 word)
{
	__u64 other = word ^ EACH_BYTE('\n');

	return ~(((other & EACH_BYTE(0x7fULL)) + EACH_BYTE(0x7fULL)) | other | EACH_BYTE(0x7fULL));
}

/* The number of bytes up to and including the first byte with the highest bit set. */
static __always_inline __u32 request_bytes_to(__u64 found)
{
	return (((found & -found) - 1) & EACH_BYTE(1)) * EACH_BYTE(1) >> 56;
}

/* Reads the lines that end in the eight bytes at `at`. Returns true if no line is to follow. */
__noinline int request_scan_word(__u32 at, __u32 n, __u64 found)
{
	__u32 next;

	for (int k = 0; k < 8 && found; k++) {
		next = at + request_bytes_to(found);
		if (next > n || request_scan_ended(next))
			return 1;
		found &= found - 1;
	}
	return 0;
}

/*
 * One line ends in the eight bytes at `at`: is it of no interest, by its first bytes? Most lines
 * are passed so, without a call. See request_scan_ended() and request_scan_line().
 */
static __always_inline bool request_line_passes(struct request_scan *scan, __u32 at, __u32 n,
						__u64 found)
{
	__u32 line = scan->line, next = at + request_bytes_to(found);
	__u64 word;

	if (found & (found - 1) || next > n || line >= REQUEST_HEAD_BYTES)
		return false;
	word = *(__u64 *)(scan->head.bytes + line);
	if (request_value_ends(word) ||
	    LOWER(word) == TEXT8('c', 'o', 'n', 't', 'e', 'n', 't', '-') ||
	    LOWER(word) == TEXT8('t', 'r', 'a', 'n', 's', 'f', 'e', 'r'))
		return false;
	scan->framing &= ~FRAMING_LAST;
	scan->line = next;
	return true;
}

/*
 * Reads the complete lines of the first `n` bytes in the scratch space, which begin with a line.
 * Compares eight bytes at a time: byte by byte, an answer's head of 200 bytes took 0.6 us. Updates
 * `framing` and `length`; `end` and `line` hold the position.
 */
__noinline int request_scan_head(__u32 n)
{
	__u32 zero = 0;
	struct request_scan *scan = bpf_map_lookup_elem(&request_scans, &zero);
	__u64 found;

	if (!scan)
		return 0;
	scan->end = scan->line = 0;
	for (__u32 i = 0; i < REQUEST_HEAD_BYTES; i += 8) {
		if (i >= n)
			break;
		found = request_newlines(*(__u64 *)(scan->head.bytes + i));
		if (found && !request_line_passes(scan, i, n, found) &&
		    request_scan_word(i, n, found))
			break;
	}
	return 0;
}

/* ---- lines that come in several pieces ---- */

/* More than the longest parsed header, and than a status line up to the code. */
enum { REQUEST_LINE_BYTES = 64, REQUEST_PIECE_BYTES = REQUEST_HEAD_BYTES - REQUEST_LINE_BYTES };

struct request_line {
	char bytes[REQUEST_LINE_BYTES];
};

/* Beginnings of incomplete lines. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_line);
} request_lines SEC(".maps");

/* Puts the `n` kept bytes before the next piece. */
static __always_inline bool request_line_restore(__u64 key, struct request_scan *scan, __u32 n)
{
	struct request_line *line = bpf_map_lookup_elem(&request_lines, &key);

	if (!line || n > REQUEST_LINE_BYTES)
		return false;
	__builtin_memcpy(scan->head.bytes, line->bytes, REQUEST_LINE_BYTES);
	return true;
}

/* Keeps the incomplete line at the end of the first `n` bytes. Returns how many bytes are kept. */
static __always_inline __u32 request_line_keep(__u64 key, const struct request_scan *scan, __u32 n)
{
	__u32 at = scan->line;

	if (at >= n || at >= REQUEST_HEAD_BYTES)
		return 0;
	n -= at;
	/* `room` is behind the head's last bytes */
	bpf_map_update_elem(&request_lines, &key, scan->head.bytes + at, BPF_ANY);
	return n < REQUEST_LINE_BYTES ? n : REQUEST_LINE_BYTES;
}

/* Reads the lines of up to `len` bytes behind the `kept` bytes. False: unreadable memory. */
static __always_inline bool request_scan_bytes(struct request_scan *scan, __u32 kept, __u64 base,
					       __u32 len)
{
	barrier_var(len); /* 5.10 knows the bounds of the compared register alone */
	if (len > REQUEST_PIECE_BYTES)
		len = REQUEST_PIECE_BYTES;
	barrier_var(kept);
	if (kept > REQUEST_LINE_BYTES ||
	    bpf_probe_read_user(scan->head.bytes + kept, len, (void *)base))
		return false;
	request_scan_head(kept + len);
	return true;
}

#endif
