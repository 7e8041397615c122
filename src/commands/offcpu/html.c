// SPDX-License-Identifier: Apache-2.0
/* Off-CPU stacks for the HTML report. See html.h. */
#include "commands/offcpu/html.h"

#include <string.h>

#include "commands/offcpu/frames.h"
#include "html/page.h"

enum {
	BYTES_MAX = 1500000,  /* of frames and stacks in the page */
	RESTS_MAX = 2000,     /* stacks of the rest; further stacks share an entry */
	REST_BYTES = 150000,  /* of these; further stacks share an entry by cause */
	CAUSE_BYTES = 250000, /* of all; further stacks share one entry */
};

struct builder {
	json_t *stacks;
	struct frame_list frames;
	struct folded rests;
	size_t bytes, rest_bytes;
	uint64_t rest_us, rest_stacks;
	bool failed;
};

static int digits(uint64_t n)
{
	int count = 1;

	for (; n >= 10; n /= 10)
		count++;
	return count;
}

static void add(struct builder *b, const struct folded_stack *s)
{
	json_t *stack = json_array();

	json_array_append_new(stack, json_integer((json_int_t)s->value));
	json_array_append_new(stack, json_integer((json_int_t)s->before));
	b->bytes += (size_t)(digits(s->value) + digits(s->before) + 5); /* "[,,]," */
	for (const char *frame = s->text; frame; frame = frame_next(frame)) {
		int number = frame_number(&b->frames, frame);

		json_array_append_new(stack, json_integer(number - 1));
		b->bytes += (size_t)digits((uint64_t)number) + 1;
	}
	if (json_array_append_new(b->stacks, stack))
		b->failed = true;
}

/* The last frame before the waker's frames names the cause. */
static const char *cause_frame(const char *text, size_t *ret_len)
{
	const char *wakers = strstr(text, ";--;"), *end = wakers ? wakers : text + strlen(text);
	const char *at = end;

	while (at > text && at[-1] != ';')
		at--;
	*ret_len = (size_t)(end - at);
	return at;
}

/* Adds a small stack to the combined stack of the thread and cause. */
static void add_to_rest(struct builder *b, const struct folded_stack *s)
{
	size_t len, thread = strcspn(s->text, ";");
	const char *cause = cause_frame(s->text, &len);
	bool full = HASH_COUNT(b->rests.stacks) >= RESTS_MAX || b->rest_bytes > REST_BYTES;
	unsigned int before = HASH_COUNT(b->rests.stacks);
	struct folded_stack *rest;
	char text[2048];

	if (b->rest_bytes > CAUSE_BYTES)
		cause = "[other]", len = strlen(cause);
	snprintf(text, sizeof(text), "%.*s;(smaller stacks);%.*s",
		 full ? 0 : (int)(thread < 900 ? thread : 900), s->text,
		 (int)(len < 900 ? len : 900), cause);
	rest = folded_get(&b->rests, full ? text + strcspn(text, ";") + 1 : text,
			  full ? strlen(text) - strcspn(text, ";") - 1 : strlen(text));
	if (!rest) {
		b->failed = true;
		return;
	}
	if (HASH_COUNT(b->rests.stacks) > before)
		b->rest_bytes += html_page_text_bytes(text);
	rest->value += s->value;
	rest->before += s->before;
	b->rest_us += s->value;
	b->rest_stacks++;
}

static json_t *json_of_frames(const struct builder *b)
{
	json_t *frames = json_array();

	for (const struct frame_entry *e = b->frames.entries; e; e = e->hh.next)
		json_array_append_new(frames, json_string(e->text));
	return frames;
}

json_t *offcpu_html_body(struct folded *folded, bool compared)
{
	struct builder b = { .stacks = json_array(), .frames.bytes_of = html_page_text_bytes };
	json_t *body = NULL;

	if (compared)
		folded_sort_changes(folded);
	else
		folded_sort_values(folded);
	for (const struct folded_stack *s = folded->stacks; s && !b.failed; s = s->hh.next) {
		if (!s->value && !s->before)
			continue;
		if (b.bytes + b.frames.bytes < BYTES_MAX)
			add(&b, s);
		else
			add_to_rest(&b, s);
	}
	for (const struct folded_stack *s = b.rests.stacks; s && !b.failed; s = s->hh.next)
		add(&b, s);
	if (!b.failed && !b.frames.failed)
		body = json_pack("{s:o, s:O, s:b, s:I, s:I}", "frames", json_of_frames(&b),
				 "stacks", b.stacks, "compared", compared, "rest_us",
				 (json_int_t)b.rest_us, "rest_stacks", (json_int_t)b.rest_stacks);
	json_decref(b.stacks);
	frame_list_free(&b.frames);
	folded_free(&b.rests);
	return body;
}
