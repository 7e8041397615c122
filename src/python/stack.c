// SPDX-License-Identifier: Apache-2.0
/* From frames to texts. See stack.h. */
#include "python/stack.h"

#include <string.h>

#include "probe/clock.h"
#include "python/code.h"
#include "python/target.h"
#include "util.h"

enum { FRAME_READS = 32, MAX_KNOWN_FRAMES = 32768 };

/* A place in the code that is new costs some 10 us. */
static struct allowance allowance = { .per_second = 2000, .burst_ms = 2000 };

/* Frames with equal numbers are at the same place: `check` tells code at reused addresses apart. */
struct known_frame {
	struct python_frame frame;
	UT_hash_handle hh;
	char text[];
};

static size_t n_known;

void stack_forget(struct target *target)
{
	struct known_frame *known, *next;

	HASH_ITER(hh, target->known_frames, known, next)
	{
		HASH_DEL(target->known_frames, known);
		n_known--;
		free(known);
	}
}

void stack_trim(struct target *target)
{
	if (n_known > MAX_KNOWN_FRAMES)
		stack_forget(target);
}

static const char *remember(struct target *target, const struct python_frame *frame,
			    const char *text)
{
	struct known_frame *known = NULL;

	/* texts are borrowed until the next tick: nothing may be forgotten here */
	if (n_known < 2 * MAX_KNOWN_FRAMES)
		known = malloc(sizeof(*known) + strlen(text) + 1);
	if (!known)
		return "<unread>";
	n_known++;
	known->frame = *frame;
	strcpy(known->text, text);
	HASH_ADD(hh, target->known_frames, frame, sizeof(known->frame), known);
	return known->text;
}

static const char *resolve(struct target *target, const struct python_frame *frame,
			   uint64_t *now_ns)
{
	struct remote r = remote_of(target->host_pid, &target->offsets, FRAME_READS);
	char text[PYTHON_FRAME_TEXT_MAX];
	struct known_frame *known;
	int err;

	HASH_FIND(hh, target->known_frames, frame, sizeof(*frame), known);
	if (known)
		return known->text;
	if (target->gone_ns)
		return "<gone>";
	if (!*now_ns)
		*now_ns = clock_monotonic_ns();
	if (!allowance_take(&allowance, 1, false, *now_ns))
		return "<unread>";
	r.str_type = target->threads.str_type;
	err = python_frame_text(&r, frame, text);
	if (!err)
		return remember(target, frame, text);
	return err == -ESTALE || err == -ESRCH ? "<gone>" : "<unread>";
}

struct column_strings stack_resolve(uint32_t host_pid, uint64_t event_ns,
				    const struct python_frame *frames,
				    const struct python_stack_info *info, struct stack_texts *texts)
{
	struct target *target = info->n ? target_get(host_pid, event_ns) : NULL;
	uint64_t now_ns = 0;
	size_t n = 0;

	for (size_t i = 0; target && i < info->n && i < PYTHON_STACK_MAX; i++) {
		unsigned int owner = frames[i].code & PYTHON_FRAME_OWNER;
		const char *text = "";

		if (!target->offsets.frame_owner_internal ||
		    owner < target->offsets.frame_owner_internal)
			text = resolve(target, &frames[i], &now_ns);
		if (text[0])
			texts->items[n++] = text;
	}
	if (n && info->cut)
		texts->items[n++] = "<cut>";
	return (struct column_strings){ texts->items, n };
}
