/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Name and annotations of a slice, encoded as members of a TrackEvent. Texts are
 * filtered as by text_printable(). Annotations of empty texts and of NULL are left out.
 */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_EVENT_H
#define UNDERSPAN_COMMANDS_TIMELINE_EVENT_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"

enum { EVENT_BRIEF_BYTES = 320, EVENT_LOOK_BYTES = 16 };

struct event {
	struct buffer body, inner; /* inner: of a message within */
	/* for a page: the name with what matters most, and what gives the colour */
	char brief[EVENT_BRIEF_BYTES], look[EVENT_LOOK_BYTES];
	int err;
};

void event_free(struct event *e);

/* Begins the event. `look`: "cause net", "part gil", "gc 2". */
void event_name(struct event *e, const char *look, const char *name);

/* Adds ", BEFORE TEXT" to the brief text, up to " < " of a stack; nothing if `text` is empty. */
void event_brief(struct event *e, const char *before, const char *text);

void event_said(struct event *e, const char *name, const char *text);
void event_count(struct event *e, const char *name, uint64_t value);

/* Members of a row. */
void event_text(struct event *e, const json_t *row, const char *column, const char *name);
void event_number(struct event *e, const json_t *row, const char *column, const char *name);
void event_ms(struct event *e, const json_t *row, const char *column, const char *name);

/* How many events the row stands for, if several. */
void event_weight(struct event *e, const json_t *row);

#endif
