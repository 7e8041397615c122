// SPDX-License-Identifier: Apache-2.0
/* Members of a TrackEvent. See event.h. */
#include "commands/timeline/event.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "commands/protobuf.h"
#include "commands/report.h"

/* Field numbers of track_event.proto and debug_annotation.proto. */
enum { EVENT_ANNOTATION = 4, EVENT_NAME = 23 };
enum { ANNOTATION_UINT = 3, ANNOTATION_DOUBLE = 5, ANNOTATION_TEXT = 6, ANNOTATION_NAME = 10 };
enum { TEXT_BYTES = 4096 };

void event_name(struct event *e, const char *look, const char *name)
{
	char clean[TEXT_BYTES];

	snprintf(e->look, sizeof(e->look), "%s", look);
	text_printable(e->brief, sizeof(e->brief), name);
	protobuf_text(&e->err, &e->body, EVENT_NAME, text_printable(clean, sizeof(clean), name));
}

void event_brief(struct event *e, const char *before, const char *text)
{
	size_t n = strlen(e->brief), len;
	const char *end = strstr(text, " < ");
	char frame[EVENT_BRIEF_BYTES];

	len = end ? (size_t)(end - text) : strlen(text);
	if (!len)
		return;
	snprintf(frame, sizeof(frame), ", %s%.*s", before, (int)(len < 250 ? len : 250), text);
	text_printable(e->brief + n, sizeof(e->brief) - n, frame);
}

static void end_annotation(struct event *e, const char *name)
{
	protobuf_text(&e->err, &e->inner, ANNOTATION_NAME, name);
	protobuf_message(&e->err, &e->body, EVENT_ANNOTATION, &e->inner);
}

void event_said(struct event *e, const char *name, const char *text)
{
	char clean[TEXT_BYTES];

	protobuf_text(&e->err, &e->inner, ANNOTATION_TEXT,
		      text_printable(clean, sizeof(clean), text));
	end_annotation(e, name);
}

void event_count(struct event *e, const char *name, uint64_t value)
{
	protobuf_number(&e->err, &e->inner, ANNOTATION_UINT, value);
	end_annotation(e, name);
}

static void put_double(struct event *e, const char *name, double value)
{
	protobuf_double(&e->err, &e->inner, ANNOTATION_DOUBLE, value);
	end_annotation(e, name);
}

void event_text(struct event *e, const json_t *row, const char *column, const char *name)
{
	const char *text = report_text(row, column);

	if (*text)
		event_said(e, name, text);
}

void event_number(struct event *e, const json_t *row, const char *column, const char *name)
{
	if (report_has(row, column))
		event_count(e, name, (uint64_t)report_number(row, column));
}

void event_ms(struct event *e, const json_t *row, const char *column, const char *name)
{
	if (report_has(row, column))
		put_double(e, name, report_number(row, column) / 1e6);
}

void event_weight(struct event *e, const json_t *row)
{
	if (report_has(row, "weight") && report_number(row, "weight") > 1)
		put_double(e, "stands for", report_number(row, "weight"));
}

void event_free(struct event *e)
{
	buffer_free(&e->body);
	buffer_free(&e->inner);
}
