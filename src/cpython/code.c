// SPDX-License-Identifier: Apache-2.0
/* Code objects of another process. See code.h. */
#include "cpython/code.h"

#include <limits.h>
#include <string.h>

#include "base/util.h"

/* ---- lines ---- */

/* 3.8, 3.9 (co_lnotab): pairs of unsigned code offset and signed line increment. */
static int64_t line_lnotab(const uint8_t *table, size_t size, int64_t line, uint32_t byte)
{
	uint32_t address = 0;

	for (size_t i = 0; i + 1 < size; i += 2) {
		address += table[i];
		if (address > byte)
			break;
		line += (int8_t)table[i + 1];
	}
	return line;
}

/* 3.10 (co_linetable): pairs of code length and signed line increment; -128: no line. */
static int64_t line_pairs(const uint8_t *table, size_t size, int64_t line, uint32_t byte)
{
	enum { NO_LINE = -128 };
	uint32_t end = 0;

	for (size_t i = 0; i + 1 < size; i += 2) {
		int step = (int8_t)table[i + 1];

		end += table[i];
		if (step != NO_LINE)
			line += step;
		if (byte < end)
			return step == NO_LINE ? -1 : line;
	}
	return -1;
}

/* Signed varint at *pos: 6 bits per byte, low bits first; bit 6: continued; bit 0 of the value:
 * sign. */
static int read_svarint(const uint8_t *table, size_t size, size_t *pos)
{
	uint32_t value = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = *pos < size ? table[(*pos)++] : 0;
		value |= shift < 32 ? (uint32_t)(byte & 63) << shift : 0;
		shift += 6;
	} while (byte & 64);
	return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/*
 * 3.11 and later (co_linetable): entries start with 0x80 | form << 3 | length - 1, length in code
 * units of two bytes; the form defines the encoding of lines and columns in the following bytes.
 */
static int64_t line_location(const uint8_t *table, size_t size, int64_t line, uint32_t byte)
{
	enum { FIRST_ONE_LINE = 10, LAST_ONE_LINE = 12, LAST_WITH_LINE = 14, NO_LINE = 15 };
	uint32_t end = 0;
	size_t pos = 0;

	while (pos < size) {
		unsigned int form = table[pos] >> 3 & 15;

		if (!(table[pos] & 0x80))
			return -1;
		end += ((table[pos] & 7u) + 1) * 2;
		pos++;
		if (form >= FIRST_ONE_LINE && form <= LAST_ONE_LINE)
			line += (int)form - FIRST_ONE_LINE;
		else if (form > LAST_ONE_LINE && form <= LAST_WITH_LINE)
			line += read_svarint(table, size, &pos);
		if (byte < end)
			return form == NO_LINE ? -1 : line;
		while (pos < size && !(table[pos] & 0x80))
			pos++;
	}
	return -1;
}

static int64_t find_line(const struct python_offsets *offsets, const uint8_t *table, size_t size,
			 int64_t firstlineno, uint32_t ip)
{
	switch (offsets->lines_kind) {
	case PYTHON_LINES_LNOTAB:
		return line_lnotab(table, size, firstlineno, ip);
	case PYTHON_LINES_PAIRS:
		return line_pairs(table, size, firstlineno,
				  offsets->ip_kind == PYTHON_IP_UNITS ? ip * 2 : ip);
	case PYTHON_LINES_LOCATION:
		return line_location(table, size, firstlineno, ip);
	}
	return -1;
}

int python_line(const struct python_offsets *offsets, const uint8_t *table, size_t size,
		int firstlineno, uint32_t ip)
{
	int64_t line = find_line(offsets, table, size, firstlineno, ip);

	return line < 0 || line > INT_MAX ? -1 : (int)line;
}

/* ---- code objects ---- */

enum { CODE_HEAD_MAX = 256, LINES_MAX = 1 << 20 };

/* The head of a code object, with the fields of its fingerprint. */
struct code_head {
	uint8_t bytes[CODE_HEAD_MAX];
	uint64_t references;
	struct python_code_fingerprint marks;
};

static uint64_t member(const struct code_head *head, uint32_t offset)
{
	uint64_t v = 0;

	if (offset + sizeof(v) <= sizeof(head->bytes))
		memcpy(&v, head->bytes + offset, sizeof(v));
	return v;
}

static void read_text_marks(struct remote *r, uint64_t object, __u64 *ret_length, __u64 *ret_hash)
{
	const struct python_offsets *o = r->offsets;
	struct python_str_head head;
	uint64_t end;

	/* unreadable fields are 0, as in BPF, so that both fingerprints are equal */
	if (remote_read(r, object + o->unicode_length, &head, sizeof(head)))
		memset(&head, 0, sizeof(head));
	if (head.hash == UINT64_MAX) {
		end = python_text_end(o, object, &head);
		head.hash = remote_u64(r, end, &end) ? 0 : end;
	}
	*ret_length = head.length;
	*ret_hash = head.hash;
}

static int read_head(struct remote *r, uint64_t code, struct code_head *ret)
{
	const struct python_offsets *o = r->offsets;
	struct python_code_fingerprint *marks = &ret->marks;
	size_t size = o->code_lines + 8; /* the last member read */
	struct python_bytes_head lines;
	int err;

	memset(ret, 0, sizeof(*ret));
	if (size > sizeof(ret->bytes))
		return -EINVAL;
	err = remote_read(r, code, ret->bytes, size);
	if (err)
		return err;
	ret->references = member(ret, 0);
	marks->type = member(ret, 8);
	marks->filename = member(ret, o->code_filename);
	marks->name = member(ret, o->code_name);
	marks->lines = member(ret, o->code_lines);
	marks->firstlineno = (uint32_t)member(ret, o->code_firstlineno);
	if (o->code_version)
		marks->version = (uint32_t)member(ret, o->code_version);
	if (marks->version)
		return 0;
	read_text_marks(r, marks->filename, &marks->filename_length, &marks->filename_hash);
	read_text_marks(r, marks->name, &marks->name_length, &marks->name_hash);
	if (!remote_read(r, marks->lines + o->bytes_size, &lines, sizeof(lines))) {
		marks->lines_size = lines.size;
		marks->lines_begin = lines.begin;
	}
	return 0;
}

/*
 * Whether a reference count is of a live object. A freed object has 0 or, in the same word, the
 * address of the next free block, which is above 4 GB. Live objects have any count: closures and
 * generators add references; immortal objects start near 10^9. Since 3.14 the upper 16 bits are
 * flags.
 */
static bool is_alive(uint64_t references)
{
	uint64_t number = references & 0xffffffffffff;

	return number && number <= UINT32_MAX;
}

/*
 * The hash of a file's name is computed late, as by the first traceback: the fingerprint was then
 * taken with the text's end.
 */
static bool is_the_same_unhashed(struct remote *r, const struct code_head *head,
				 const struct python_frame *frame)
{
	struct python_code_fingerprint marks = head->marks;
	struct python_str_head name;
	uint64_t end;

	if (marks.version ||
	    remote_read(r, marks.filename + r->offsets->unicode_length, &name, sizeof(name)))
		return false;
	end = python_text_end(r->offsets, marks.filename, &name);
	if (remote_u64(r, end, &end))
		end = 0;
	marks.filename_hash = end;
	return python_code_check(&marks) == frame->check;
}

static bool is_the_same(struct remote *r, const struct code_head *head,
			const struct python_frame *frame)
{
	return is_alive(head->references) && (python_code_check(&head->marks) == frame->check ||
					      is_the_same_unhashed(r, head, frame));
}

static int read_line(struct remote *r, const struct code_head *head, uint32_t ip)
{
	const struct python_offsets *o = r->offsets;
	AUTO_FREE uint8_t *table = NULL;
	int size;

	/* up to 3.10 f_lasti is -1 before the first instruction, as in a traced call */
	if (ip == PYTHON_FRAME_NO_IP && o->ip_kind != PYTHON_IP_POINTER)
		return (int)head->marks.firstlineno;
	if (ip == PYTHON_FRAME_NO_IP)
		return -1;
	if (o->ip_kind == PYTHON_IP_POINTER) {
		if (ip < o->code_bytecode)
			return -1;
		ip -= o->code_bytecode;
	}
	if ((int32_t)ip < 0)
		return (int)head->marks.firstlineno;
	table = malloc(LINES_MAX);
	size = table ? python_bytes(r, head->marks.lines, table, LINES_MAX) : -ENOMEM;
	return size < 0 ? -1
			: python_line(o, table, (size_t)size, (int)head->marks.firstlineno, ip);
}

/* Reads a text of at most `size` bytes including the NUL; a truncated text ends with "…". */
static int read_shown_text(struct remote *r, uint64_t object, char *ret, size_t size)
{
	static const char more[] = "…";
	bool cut;
	int err = python_text(r, object, ret, size - strlen(more), &cut);

	if (!err && cut)
		strcat(ret, more);
	return err;
}

/* Reads the texts of a verified code object. */
static int read_texts(struct remote *r, const struct code_head *head,
		      char name[PYTHON_FUNCTION_MAX], char file[PYTHON_FILE_MAX])
{
	const struct python_offsets *o = r->offsets;
	uint64_t function = o->code_qualname ? member(head, o->code_qualname) : head->marks.name;
	int err = read_shown_text(r, function, name, PYTHON_FUNCTION_MAX);

	return err ? err : read_shown_text(r, head->marks.filename, file, PYTHON_FILE_MAX);
}

/* 3.12 and later: the shim frame that cleans up after __init__(); both names are the same string
 * object.
 */
static bool is_rest_of_init(const struct remote *r, const struct code_head *head, const char *name)
{
	return r->offsets->minor >= 12 && head->marks.filename == head->marks.name &&
	       !strcmp(name, "__init__");
}

int python_frame_text(struct remote *r, const struct python_frame *frame,
		      char ret[PYTHON_FRAME_TEXT_MAX])
{
	uint64_t code = frame->code & ~(uint64_t)PYTHON_FRAME_OWNER;
	char name[PYTHON_FUNCTION_MAX], file[PYTHON_FILE_MAX];
	struct code_head head, after;
	int line = -1, text_err, err = read_head(r, code, &head);

	if (err)
		return err;
	if (!is_the_same(r, &head, frame))
		return -ESTALE;
	text_err = read_texts(r, &head, name, file);
	if (!text_err)
		line = read_line(r, &head, frame->ip);
	/* if the object was freed meanwhile, the texts may belong to another object */
	err = read_head(r, code, &after);
	if (!err && !is_the_same(r, &after, frame))
		err = -ESTALE;
	if (err || text_err)
		return err ? err : text_err;
	if (is_rest_of_init(r, &head, name))
		ret[0] = 0;
	else if (line >= 0)
		snprintf(ret, PYTHON_FRAME_TEXT_MAX, "%s (%s:%d)", name, file, line);
	else
		snprintf(ret, PYTHON_FRAME_TEXT_MAX, "%s (%s)", name, file);
	return 0;
}
