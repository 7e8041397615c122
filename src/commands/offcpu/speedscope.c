// SPDX-License-Identifier: Apache-2.0
/* Files of speedscope. See speedscope.h. */
#include "commands/offcpu/speedscope.h"

#include <jansson.h>

#include "base/version.h"
#include "commands/offcpu/frames.h"

static void set_place(json_t *frame, const char *text)
{
	struct frame_place place;

	if (!frame_place_of(text, &place))
		return;
	json_object_set_new(frame, "name", json_stringn(text, place.name_len));
	json_object_set_new(frame, "file", json_stringn(place.file, place.file_len));
	json_object_set_new(frame, "line", json_integer(place.line));
}

static json_t *json_of_frames(const struct frame_list *list)
{
	json_t *frames = json_array();

	for (const struct frame_entry *e = list->entries; e; e = e->hh.next) {
		json_t *frame = json_pack("{s:s}", "name", e->text);

		set_place(frame, e->text);
		json_array_append_new(frames, frame);
	}
	return frames;
}

static json_t *sample_of(const struct folded_stack *s, struct frame_list *list)
{
	json_t *sample = json_array();

	for (const char *frame = s->text; frame; frame = frame_next(frame))
		json_array_append_new(sample, json_integer(frame_number(list, frame) - 1));
	return sample;
}

int speedscope_write(struct folded *folded, const char *name, FILE *out)
{
	json_t *samples = json_array(), *weights = json_array(), *root = NULL;
	struct frame_list list = { 0 };
	int err = -ENOMEM;

	folded_sort_texts(folded);
	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next) {
		if (!s->value)
			continue;
		json_array_append_new(samples, sample_of(s, &list));
		json_array_append_new(weights, json_integer((json_int_t)s->value));
	}
	if (!list.failed)
		root = json_pack(
			"{s:s, s:s, s:s, s:{s:o}, s:[{s:s, s:s, s:s, s:i, s:I, s:O, s:O}]}",
			"$schema", "https://www.speedscope.app/file-format-schema.json", "exporter",
			"underspan " UNDERSPAN_VERSION, "name", name, "shared", "frames",
			json_of_frames(&list), "profiles", "type", "sampled", "name", name, "unit",
			"microseconds", "startValue", 0, "endValue",
			(json_int_t)folded_total(folded), "samples", samples, "weights", weights);
	if (root)
		err = json_dumpf(root, out, JSON_COMPACT) || fputc('\n', out) == EOF ||
				      fflush(out) || ferror(out)
			      ? -EIO
			      : 0;
	json_decref(root);
	json_decref(samples);
	json_decref(weights);
	frame_list_free(&list);
	return err;
}
