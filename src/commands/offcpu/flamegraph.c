// SPDX-License-Identifier: Apache-2.0
/*
 * A flame graph as SVG. See flamegraph.h. Stacks are sorted by text, so stacks with a common prefix
 * are adjacent: a frame is drawn at the first stack without the frame; only the frames of a single
 * stack are open at a time.
 */
#include "commands/offcpu/flamegraph.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"

enum {
	WIDTH = 1200,
	MARGIN = 10,
	HEADER = 56,
	FRAME_HEIGHT = 17,
	FONT_SIZE = 12,
	MAX_DEPTH = 256, /* higher frames are not drawn; their time is in the frame below */
};
static const double CHAR_WIDTH = 7.25; /* of the monospaced font */
static const double MIN_WIDTH = 0.2;   /* narrower frames are invisible */

/* An open frame: of the current stack and possibly of earlier stacks. */
struct frame {
	const char *name; /* within the stack's text */
	size_t len;
	uint64_t begin; /* microseconds from the left */
	uint64_t before;
};

struct drawing {
	FILE *out;
	bool diff;
	uint64_t total, at, total_before;
	size_t depth; /* of the drawing */
	struct frame open[MAX_DEPTH];
	size_t n_open;
};

/* ---- text ---- */

static void put_text(FILE *out, const char *text)
{
	char clean[1024];

	text_print_markup(out, text_printable(clean, sizeof(clean), text));
}

/* The label truncated to the width; '' below three characters. */
static void put_label(FILE *out, const char *text, double width)
{
	size_t room = width > CHAR_WIDTH ? (size_t)((width - 4) / CHAR_WIDTH) : 0;
	char cut[1024];

	if (room < 3)
		return;
	if (text_width(text) <= room) {
		text_print_markup(out, text);
		return;
	}
	snprintf(cut, sizeof(cut), "%.*s..", (int)text_prefix(text, room - 2, NULL), text);
	text_print_markup(out, cut);
}

/* ---- colour ---- */

/* Warm colours by name: a function has the same colour everywhere. */
static void colour_of_name(const char *name, unsigned int rgb[3])
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	rgb[0] = 205 + hash % 50;
	rgb[1] = 110 + (hash >> 8) % 110;
	rgb[2] = 50 + (hash >> 16) % 60;
}

/* White: unchanged; intensity: change relative to the larger value. */
static void colour_of_change(uint64_t value, uint64_t before, unsigned int rgb[3])
{
	double larger = (double)(value > before ? value : before);
	double change = larger > 0 ? ((double)value - (double)before) / larger : 0;
	unsigned int pale = (unsigned int)lround(245 - 155 * sqrt(fabs(change)));

	rgb[0] = rgb[1] = rgb[2] = pale;
	rgb[change < 0 ? 2 : 0] = 245;
}

/* ---- frames ---- */

static double x_of(const struct drawing *d, uint64_t us)
{
	return MARGIN + (double)us * (WIDTH - 2 * MARGIN) / (double)d->total;
}

static void put_title(const struct drawing *d, const char *name, uint64_t value, uint64_t before)
{
	fputs("<title>", d->out);
	text_print_markup(d->out, name);
	fprintf(d->out, " (%.3f ms, %.2f%%", (double)value / 1e3,
		100 * (double)value / (double)d->total);
	if (d->diff)
		fprintf(d->out, "; before %.3f ms, %+.3f ms", (double)before / 1e3,
			((double)value - (double)before) / 1e3);
	fputs(")</title>", d->out);
}

static void draw(const struct drawing *d, const struct frame *frame, size_t level)
{
	uint64_t value = d->at - frame->begin;
	double x = x_of(d, frame->begin), width = x_of(d, d->at) - x;
	double y = HEADER + (double)((d->depth - level - 1) * FRAME_HEIGHT);
	char raw[1024], name[1024], label[1024];
	unsigned int rgb[3];

	if (width < MIN_WIDTH)
		return;
	snprintf(raw, sizeof(raw), "%.*s", (int)(frame->len < 1000 ? frame->len : 1000),
		 frame->name);
	text_printable(name, sizeof(name), raw);
	if (d->diff)
		colour_of_change(value, frame->before, rgb);
	else
		colour_of_name(name, rgb);
	fputs("<g>", d->out);
	put_title(d, name, value, frame->before);
	fprintf(d->out,
		"<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" "
		"fill=\"#%02x%02x%02x\"/><text x=\"%.2f\" y=\"%.0f\">",
		x, y, width, FRAME_HEIGHT - 1, rgb[0], rgb[1], rgb[2], x + 2, y + 12.5);
	put_label(d->out, folded_short_frame(name, strlen(name), label, sizeof(label)), width);
	fputs("</text></g>\n", d->out);
}

/* Draws and closes frames above `depth`. */
static void close_to(struct drawing *d, size_t depth)
{
	while (d->n_open > depth)
		draw(d, &d->open[--d->n_open], d->n_open);
}

/* Number of open frames shared with the stack. */
static size_t common_depth(const struct drawing *d, const char *text)
{
	size_t depth = 0;

	while (depth < d->n_open) {
		size_t len = strcspn(text, ";");

		if (len != d->open[depth].len || memcmp(text, d->open[depth].name, len))
			break;
		depth++;
		text += len;
		if (!*text++)
			break;
	}
	return depth;
}

static void add_stack(struct drawing *d, const struct folded_stack *stack)
{
	const char *text = stack->text;

	close_to(d, common_depth(d, text));
	for (size_t level = 0; level < MAX_DEPTH; level++) {
		size_t len = strcspn(text, ";");

		if (level == d->n_open)
			d->open[d->n_open++] = (struct frame){ text, len, d->at, 0 };
		d->open[level].before += stack->before;
		text += len;
		if (!*text++)
			break;
	}
	d->at += stack->value;
}

static size_t deepest(const struct folded *folded)
{
	size_t deepest_depth = 0;

	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next) {
		size_t depth = 1;

		for (const char *c = s->text; *c && depth < MAX_DEPTH; c++)
			depth += *c == ';';
		if (s->value && depth > deepest_depth)
			deepest_depth = depth;
	}
	return deepest_depth;
}

/* ---- the file ---- */

static void put_header(const struct drawing *d, const char *title, const char *subtitle)
{
	size_t height = HEADER + d->depth * FRAME_HEIGHT + MARGIN;

	fprintf(d->out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" "
		"height=\"%zu\" viewBox=\"0 0 %d %zu\">\n"
		"<style>text{font:%dpx monospace;fill:#000}rect{stroke:#fff;stroke-width:.4}"
		"g:hover>rect{stroke:#000;stroke-width:1}.title{font-size:17px;"
		"text-anchor:middle}.sub{text-anchor:middle;fill:#555}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text class=\"title\" x=\"%d\" y=\"24\">",
		WIDTH, height, WIDTH, height, FONT_SIZE, WIDTH / 2);
	put_text(d->out, title);
	fprintf(d->out, "</text>\n<text class=\"sub\" x=\"%d\" y=\"44\">", WIDTH / 2);
	put_text(d->out, subtitle);
	fputs("</text>\n", d->out);
}

int flamegraph_write(struct folded *folded, bool diff, const char *title, const char *subtitle,
		     FILE *out)
{
	struct drawing *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	folded_sort_texts(folded);
	d->out = out;
	d->diff = diff;
	d->total = folded_total(folded);
	d->depth = deepest(folded);
	put_header(d, title, subtitle);
	/* stacks only in `before` have no width; they show in the colour of the frames below */
	for (const struct folded_stack *s = folded->stacks; s && d->total; s = s->hh.next)
		add_stack(d, s);
	close_to(d, 0);
	fputs("</svg>\n", out);
	free(d);
	return fflush(out) || ferror(out) ? -EIO : 0;
}
