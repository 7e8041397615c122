// SPDX-License-Identifier: Apache-2.0
/* Profiles of pprof. See pprof.h. */
#include "commands/offcpu/pprof.h"

#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "commands/offcpu/frames.h"
#include "commands/protobuf.h"

/* Field numbers of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING_TABLE = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_DEFAULT_SAMPLE_TYPE = 14
};
enum { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT = 2 };
enum { SAMPLE_LOCATION_ID = 1, SAMPLE_VALUE = 2, SAMPLE_LABEL = 3 };
enum { LABEL_KEY = 1, LABEL_STR = 2 };
enum { LOCATION_ID = 1, LOCATION_LINE = 4 };
enum { LINE_FUNCTION_ID = 1, LINE_LINE = 2 };
enum { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_FILENAME = 4 };

/* The types of values. The first is the sum of all waits, the causes after it are parts of it. */
static const char *const types[] = { "off_cpu", "gil", "lock", "cpu" };

struct encoder {
	size_t n_types;
	struct buffer profile, message, inner; /* a message within a message within the profile */
	struct frame_list frames, strings;     /* index: number of the string */
	int err;
};

/* ---- contents ---- */

static uint64_t string_index(struct encoder *e, const char *text, size_t len)
{
	char copy[FRAME_BYTES_MAX + 1];

	snprintf(copy, sizeof(copy), "%.*s", (int)(len < FRAME_BYTES_MAX ? len : FRAME_BYTES_MAX),
		 text);
	return *copy ? (uint64_t)frame_number(&e->strings, copy) : 0;
}

static void put_label(struct encoder *e, const char *key, const char *text, size_t len)
{
	protobuf_number(&e->err, &e->inner, LABEL_KEY, string_index(e, key, strlen(key)));
	protobuf_number(&e->err, &e->inner, LABEL_STR, string_index(e, text, len));
	protobuf_message(&e->err, &e->message, SAMPLE_LABEL, &e->inner);
}

/* Leaf first, without the thread. */
static void put_locations(struct encoder *e, const char *text)
{
	uint64_t ids[FOLDED_FRAMES_MAX];
	size_t n = 0;

	for (const char *frame = frame_next(text); frame && n < FOLDED_FRAMES_MAX;
	     frame = frame_next(frame))
		ids[n++] = (uint64_t)frame_number(&e->frames, frame);
	while (n)
		protobuf_varint(&e->err, &e->inner, ids[--n]);
	protobuf_message(&e->err, &e->message, SAMPLE_LOCATION_ID, &e->inner);
}

static bool is_of_type(const struct folded_stack *s, const char *type)
{
	return type == types[0] ? !folded_is_of(s, "cpu") : folded_is_of(s, type);
}

static void put_sample(struct encoder *e, const struct folded_stack *s)
{
	size_t len;
	const char *cause = folded_cause(s, &len);

	put_locations(e, s->text);
	for (size_t i = 0; i < e->n_types; i++)
		protobuf_varint(&e->err, &e->inner, is_of_type(s, types[i]) ? s->value * 1000 : 0);
	protobuf_message(&e->err, &e->message, SAMPLE_VALUE, &e->inner);
	put_label(e, "thread", s->text, strcspn(s->text, ";"));
	if (len)
		put_label(e, "cause", cause, len);
	if (folded_is_idle(s))
		put_label(e, "idle", "yes", 3);
	protobuf_message(&e->err, &e->profile, PROFILE_SAMPLE, &e->message);
}

/* Id of a location and function: the frame's number. */
static void put_frame(struct encoder *e, const struct frame_entry *frame)
{
	struct frame_place place = { .name_len = strlen(frame->text) };
	uint64_t id = (uint64_t)frame->number;

	frame_place_of(frame->text, &place);
	protobuf_number(&e->err, &e->inner, LINE_FUNCTION_ID, id);
	protobuf_number(&e->err, &e->inner, LINE_LINE, (uint64_t)place.line);
	protobuf_number(&e->err, &e->message, LOCATION_ID, id);
	protobuf_message(&e->err, &e->message, LOCATION_LINE, &e->inner);
	protobuf_message(&e->err, &e->profile, PROFILE_LOCATION, &e->message);
	protobuf_number(&e->err, &e->message, FUNCTION_ID, id);
	protobuf_number(&e->err, &e->message, FUNCTION_NAME,
			string_index(e, frame->text, place.name_len));
	if (place.file)
		protobuf_number(&e->err, &e->message, FUNCTION_FILENAME,
				string_index(e, place.file, place.file_len));
	protobuf_message(&e->err, &e->profile, PROFILE_FUNCTION, &e->message);
}

static void put_types(struct encoder *e)
{
	for (size_t i = 0; i < e->n_types; i++) {
		protobuf_number(&e->err, &e->message, VALUE_TYPE_TYPE,
				string_index(e, types[i], strlen(types[i])));
		protobuf_number(&e->err, &e->message, VALUE_TYPE_UNIT,
				string_index(e, "nanoseconds", 11));
		protobuf_message(&e->err, &e->profile, PROFILE_SAMPLE_TYPE, &e->message);
	}
	protobuf_number(&e->err, &e->profile, PROFILE_DEFAULT_SAMPLE_TYPE,
			string_index(e, types[0], strlen(types[0])));
}

static void encode(struct encoder *e, struct folded *folded, int64_t from_us, uint64_t duration_ns)
{
	put_types(e);
	folded_sort_values(folded);
	for (const struct folded_stack *s = folded->stacks; s; s = s->hh.next) {
		if (s->value)
			put_sample(e, s);
	}
	for (const struct frame_entry *f = e->frames.entries; f; f = f->hh.next)
		put_frame(e, f);
	protobuf_bytes(&e->err, &e->profile, PROFILE_STRING_TABLE, "", 0); /* index 0 */
	for (const struct frame_entry *s = e->strings.entries; s; s = s->hh.next)
		protobuf_bytes(&e->err, &e->profile, PROFILE_STRING_TABLE, s->text,
			       strlen(s->text));
	protobuf_number(&e->err, &e->profile, PROFILE_TIME_NANOS, (uint64_t)from_us * 1000);
	protobuf_number(&e->err, &e->profile, PROFILE_DURATION_NANOS, duration_ns);
	if (e->frames.failed || e->strings.failed)
		e->err = -ENOMEM;
}

static int write_gzip(const struct buffer *bytes, FILE *out)
{
	uLong room = compressBound(bytes->len) + 64;
	z_stream z = { .next_in = (Bytef *)bytes->data, .avail_in = (uInt)bytes->len };
	AUTO_FREE Bytef *packed = malloc(room);
	int err = 0;

	if (!packed || deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
				    Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	z.next_out = packed;
	z.avail_out = (uInt)room;
	if (deflate(&z, Z_FINISH) != Z_STREAM_END ||
	    fwrite(packed, 1, z.total_out, out) != z.total_out || fflush(out))
		err = -EIO;
	deflateEnd(&z);
	return err;
}

int pprof_write(struct folded *folded, bool with_cpu, int64_t from_us, uint64_t duration_ns,
		FILE *out)
{
	struct encoder e = { .n_types = with_cpu ? 4 : 3 };

	encode(&e, folded, from_us, duration_ns);
	if (!e.err)
		e.err = write_gzip(&e.profile, out);
	buffer_free(&e.profile);
	buffer_free(&e.message);
	buffer_free(&e.inner);
	frame_list_free(&e.frames);
	frame_list_free(&e.strings);
	return e.err;
}
