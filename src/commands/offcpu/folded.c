// SPDX-License-Identifier: Apache-2.0
/* Folded stacks. See folded.h. */
#include "commands/offcpu/folded.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"

enum { FRAME_MAX = 512, FILE_MAX = 256 << 20 };

int folded_frame(struct buffer *text, const char *frame)
{
	char clean[FRAME_MAX];
	int err;

	text_printable(clean, sizeof(clean), *frame ? frame : "?");
	for (char *c = clean; *c; c++) {
		if (*c == ';')
			*c = ':';
	}
	err = text->len ? buffer_append(text, ";", 1) : 0;
	return err ? err : buffer_append(text, clean, strlen(clean));
}

char *folded_short_frame(const char *frame, size_t len, char *buf, size_t size)
{
	const char *open = memchr(frame, '(', len), *slash = NULL, *rest = frame;
	int head = 0;

	if (open)
		slash = memrchr(open, '/', len - (size_t)(open - frame));
	if (slash) {
		head = (int)(open + 1 - frame);
		rest = slash + 1;
	}
	snprintf(buf, size, "%.*s%.*s", head, frame, (int)(len - (size_t)(rest - frame)), rest);
	return buf;
}

struct folded_stack *folded_get(struct folded *folded, const char *text, size_t len)
{
	struct folded_stack *stack;

	HASH_FIND(hh, folded->stacks, text, len, stack);
	if (stack)
		return stack;
	stack = calloc(1, sizeof(*stack) + len + 1);
	if (!stack)
		return NULL;
	memcpy(stack->text, text, len);
	HASH_ADD(hh, folded->stacks, text, len, stack);
	return stack;
}

/* ---- order ---- */

/* Like strcmp(), but ';' sorts first: "a;b" before "a b". */
int folded_compare_texts(const char *a, const char *b)
{
	unsigned int x, y;

	while (*a && *a == *b) {
		a++;
		b++;
	}
	x = *a == ';' ? 1 : (unsigned char)*a;
	y = *b == ';' ? 1 : (unsigned char)*b;
	return (x > y) - (x < y);
}

static int by_text(const struct folded_stack *a, const struct folded_stack *b)
{
	return folded_compare_texts(a->text, b->text);
}

static int by_value(const struct folded_stack *a, const struct folded_stack *b)
{
	if (a->value != b->value)
		return a->value < b->value ? 1 : -1;
	return by_text(a, b);
}

static uint64_t change_of(const struct folded_stack *s)
{
	return s->value > s->before ? s->value - s->before : s->before - s->value;
}

static int by_change(const struct folded_stack *a, const struct folded_stack *b)
{
	uint64_t x = change_of(a), y = change_of(b);

	if (x != y)
		return x < y ? 1 : -1;
	return by_text(a, b);
}

void folded_sort_texts(struct folded *folded)
{
	HASH_SORT(folded->stacks, by_text);
}

void folded_sort_values(struct folded *folded)
{
	HASH_SORT(folded->stacks, by_value);
}

void folded_sort_changes(struct folded *folded)
{
	HASH_SORT(folded->stacks, by_change);
}

/* ---- numbers ---- */

void folded_round(struct folded *folded)
{
	uint64_t ns = 0, us = 0;

	folded_sort_texts(folded);
	for (struct folded_stack *s = folded->stacks; s; s = s->hh.next) {
		ns += s->ns;
		s->value = ns / NSEC_PER_USEC - us;
		us += s->value;
	}
}

const char *folded_cause(const struct folded_stack *stack, size_t *ret_len)
{
	const char *wakers = strstr(stack->text, ";--;"), *found = "";

	for (const char *c = stack->text; *c && c != wakers; c++) {
		if (*c == '[')
			found = c + 1;
	}
	*ret_len = strcspn(found, ",];");
	return found;
}

bool folded_is_of(const struct folded_stack *stack, const char *cause)
{
	size_t len;
	const char *found = folded_cause(stack, &len);

	return len == strlen(cause) && !memcmp(found, cause, len);
}

bool folded_is_idle(const struct folded_stack *stack)
{
	static const char end[] = ", idle]";
	size_t len;
	const char *found = folded_cause(stack, &len);

	return !strncmp(found + len, end, sizeof(end) - 1);
}

static int by_idle(const struct folded_stack *a, const struct folded_stack *b)
{
	return folded_is_idle(a) - folded_is_idle(b);
}

void folded_sort_idle_last(struct folded *folded)
{
	HASH_SORT(folded->stacks, by_idle); /* a merge sort: stable */
}

uint64_t folded_total_idle(const struct folded *folded)
{
	uint64_t total = 0;

	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next)
		total += folded_is_idle(s) ? s->value : 0;
	return total;
}

uint64_t folded_total(const struct folded *folded)
{
	uint64_t total = 0;

	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next)
		total += s->value;
	return total;
}

uint64_t folded_total_before(const struct folded *folded)
{
	uint64_t total = 0;

	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next)
		total += s->before;
	return total;
}

/* ---- reading ---- */

/* Splits "stack number"; false: other text. */
static bool split_line(const char *line, size_t len, size_t *ret_stack, uint64_t *ret_value)
{
	size_t at = len, frames = 1;
	uint64_t value = 0;

	while (at && line[at - 1] >= '0' && line[at - 1] <= '9')
		at--;
	if (at < 2 || at == len || len - at > 18 || line[at - 1] != ' ' || line[0] == ';')
		return false;
	for (size_t i = at; i < len; i++)
		value = value * 10 + (uint64_t)(line[i] - '0');
	for (size_t i = 0; i < at - 1; i++) {
		/* control characters: not a folded file */
		if ((unsigned char)line[i] < 0x20)
			return false;
		frames += line[i] == ';';
	}
	*ret_stack = at - 1;
	*ret_value = value;
	return frames <= FOLDED_FRAMES_MAX;
}

static struct folded_stack *get_clean(struct folded *folded, const char *line, size_t len)
{
	AUTO_FREE char *raw = strndup(line, len), *clean = malloc(len + 1);

	if (!raw || !clean)
		return NULL;
	text_printable(clean, len + 1, raw);
	return folded_get(folded, clean, strlen(clean));
}

int folded_parse(struct folded *folded, const char *data, size_t len, const char *name,
		 struct why *why)
{
	unsigned long number = 1;
	uint64_t total = 0;

	for (size_t at = 0; at < len; number++) {
		const char *line = data + at, *end = memchr(line, '\n', len - at);
		size_t line_len = end ? (size_t)(end - line) : len - at, stack_len;
		struct folded_stack *stack;
		uint64_t value;

		at += line_len + 1;
		if (line_len && line[line_len - 1] == '\r')
			line_len--;
		if (!line_len)
			continue;
		if (!split_line(line, line_len, &stack_len, &value))
			return why_fail(why, EINVAL,
					"%s:%lu: not 'frame;frame;frame microseconds': give a file "
					"written by `underspan offcpu --folded`",
					name, number);
		if (__builtin_add_overflow(total, value, &total))
			return why_fail(why, EINVAL, "%s:%lu: the numbers are too large", name,
					number);
		stack = get_clean(folded, line, stack_len);
		if (!stack)
			return why_fail(why, ENOMEM, "out of memory");
		stack->before += value;
	}
	return 0;
}

int folded_read(struct folded *folded, const char *path, struct why *why)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct buffer text = { 0 };
	struct stat st;
	ssize_t n = 1;
	int err = 0;

	if (fd < 0)
		return why_fail(why, EINVAL, "%s: cannot be read: %s", path, strerror(errno));
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		return why_fail(why, EINVAL, "%s: a directory: give a file", path);
	while (!err && n > 0) {
		err = buffer_reserve(&text, 64 << 10);
		if (err)
			break;
		n = read(fd, text.data + text.len, text.capacity - text.len);
		text.len += n > 0 ? (size_t)n : 0;
		if (text.len > FILE_MAX)
			err = -EFBIG;
	}
	if (err == -EFBIG)
		why_fail(why, EINVAL, "%s: larger than 256 MiB, not a file of folded stacks", path);
	else if (err)
		why_fail(why, ENOMEM, "out of memory");
	else if (n < 0)
		err = why_fail(why, EINVAL, "%s: cannot be read: %s", path, strerror(errno));
	else
		err = folded_parse(folded, text.data, text.len, path, why);
	buffer_free(&text);
	return err == -ENOMEM ? err : err ? -EINVAL : 0;
}

/* ---- writing ---- */

int folded_write(const struct folded *folded, bool diff, FILE *out)
{
	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next) {
		if (diff && (s->value || s->before))
			fprintf(out, "%s %" PRIu64 " %" PRIu64 "\n", s->text, s->before, s->value);
		else if (!diff && s->value)
			fprintf(out, "%s %" PRIu64 "\n", s->text, s->value);
	}
	return fflush(out) || ferror(out) ? -EIO : 0;
}

void folded_free(struct folded *folded)
{
	struct folded_stack *s, *next;

	HASH_ITER(hh, folded->stacks, s, next)
	{
		HASH_DEL(folded->stacks, s);
		free(s);
	}
}
