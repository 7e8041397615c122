// SPDX-License-Identifier: Apache-2.0
/* Distinct frames of folded stacks. See frames.h. */
#include "commands/offcpu/frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static int number_of(struct frame_list *list, const char *frame, size_t len)
{
	char raw[FRAME_BYTES_MAX + 1], text[FRAME_BYTES_MAX + 1];
	struct frame_entry *entry;

	snprintf(raw, sizeof(raw), "%.*s", (int)(len < FRAME_BYTES_MAX ? len : FRAME_BYTES_MAX),
		 frame);
	text_printable(text, sizeof(text), raw);
	len = strlen(text);
	HASH_FIND(hh, list->entries, text, len, entry);
	if (entry)
		return entry->number;
	entry = malloc(sizeof(*entry) + len + 1);
	if (!entry) {
		list->failed = true;
		return 0;
	}
	memcpy(entry->text, text, len + 1);
	entry->number = (int)HASH_COUNT(list->entries) + 1;
	HASH_ADD(hh, list->entries, text, len, entry);
	if (list->bytes_of)
		list->bytes += list->bytes_of(text);
	return entry->number;
}

int frame_number(struct frame_list *list, const char *frame)
{
	return number_of(list, frame, strcspn(frame, ";"));
}

int frame_number_of_name(struct frame_list *list, const char *name)
{
	return number_of(list, name, strlen(name));
}

const char *frame_next(const char *frame)
{
	const char *end = strchr(frame, ';');

	return end ? end + 1 : NULL;
}

void frame_list_free(struct frame_list *list)
{
	struct frame_entry *entry, *next;

	HASH_ITER(hh, list->entries, entry, next)
	{
		HASH_DEL(list->entries, entry);
		free(entry);
	}
}

bool frame_place_of(const char *text, struct frame_place *ret)
{
	size_t len = strlen(text);
	const char *colon = strrchr(text, ':'), *open;
	char *end;
	long line;

	if (!len || text[len - 1] != ')' || !colon)
		return false;
	line = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end != ')' || end[1] || line < 0 || line > 100000000)
		return false;
	open = strstr(text, " (");
	if (!open || open > colon)
		return false;
	*ret = (struct frame_place){ .name_len = (size_t)(open - text),
				     .file = open + 2,
				     .file_len = (size_t)(colon - open) - 2,
				     .line = (int)line };
	return true;
}
