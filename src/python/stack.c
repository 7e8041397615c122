// SPDX-License-Identifier: Apache-2.0
/* From frames to texts. See stack.h. */
#include "python/stack.h"

#include <string.h>

#include "probe/clock.h"
#include "python/code.h"
#include "python/target.h"
#include "readers.h"
#include "util.h"

enum { FRAME_READS = 32, MAX_KNOWN_FRAMES = 32768 };

/* A place in the code that is new costs some 10 us. */
static struct allowance allowance = { .per_second = 2000, .burst_ms = 2000 };

static const char gone[] = "<gone>", unread[] = "<unread>";

/* Frames with equal numbers are at the same place: `check` tells code at reused addresses apart. */
struct known_frame {
	struct python_frame frame;
	const char *text;   /* NULL: a job reads it */
	uint64_t failed_ns; /* then it could not be read: what is later may try again; 0: it was */
	UT_hash_handle hh;
};

struct frame_job {
	struct job job;
	struct target *target;
	struct python_frame frame;
	int err;
	char text[PYTHON_FRAME_TEXT_MAX];
};

static size_t n_known;

static struct known_frame *find(const struct target *target, const struct python_frame *frame)
{
	struct known_frame *known;

	HASH_FIND(hh, target->known_frames, frame, sizeof(*frame), known);
	return known;
}

static void forget(struct target *target, struct known_frame *known)
{
	HASH_DEL(target->known_frames, known);
	n_known--;
	if (!known->failed_ns)
		free((char *)known->text);
	free(known);
}

void stack_forget(struct target *target)
{
	struct known_frame *known, *next;

	HASH_ITER(hh, target->known_frames, known, next)
	forget(target, known);
}

void stack_trim(struct target *target)
{
	if (n_known > MAX_KNOWN_FRAMES)
		stack_forget(target);
}

/* ---- reading ---- */

static void read_frame(struct job *job)
{
	struct frame_job *j = (struct frame_job *)job;
	struct remote r = remote_of(job->host_pid, &j->target->offsets, FRAME_READS);

	r.str_type = j->target->threads.str_type;
	j->err = python_frame_text(&r, &j->frame, j->text);
}

static void frame_is_read(struct job *job)
{
	struct frame_job *j = (struct frame_job *)job;
	struct known_frame *known = j->target->dropped ? NULL : find(j->target, &j->frame);

	if (known && !known->text) {
		known->text = job->ran && !j->err ? strdup(j->text) : NULL;
		if (!known->text) {
			known->text = j->err == -ESTALE || j->err == -ESRCH ? gone : unread;
			known->failed_ns = clock_monotonic_ns();
		}
	}
	target_release(j->target);
	free(j);
}

/* Nothing happens when it cannot be read now. */
static void start_reading(struct target *target, struct known_frame *known, uint64_t now_ns)
{
	struct frame_job *j = allowance_take(&allowance, 1, false, now_ns) ? malloc(sizeof(*j))
									   : NULL;

	if (!j)
		return;
	j->job = (struct job){ .host_pid = target->host_pid,
			       .run = read_frame,
			       .done = frame_is_read };
	j->target = target;
	j->frame = known->frame;
	j->err = 0;
	if (!readers_give(&j->job)) {
		free(j);
		return;
	}
	target_hold(target);
	known->text = NULL;
	known->failed_ns = 0;
}

static struct known_frame *know(struct target *target, const struct python_frame *frame)
{
	struct known_frame *known = NULL;

	/* texts are borrowed until the next tick: nothing may be forgotten here */
	if (n_known < 2 * MAX_KNOWN_FRAMES)
		known = malloc(sizeof(*known));
	if (!known)
		return NULL;
	*known = (struct known_frame){ .frame = *frame, .text = unread, .failed_ns = 1 };
	n_known++;
	HASH_ADD(hh, target->known_frames, frame, sizeof(known->frame), known);
	return known;
}

static const char *resolve(struct target *target, const struct python_frame *frame,
			   uint64_t event_ns, uint64_t *now_ns)
{
	struct known_frame *known = find(target, frame);

	if (known && known->text && !known->failed_ns)
		return known->text;
	if (!known && target->gone_ns)
		return gone;
	if (!known && !(known = know(target, frame)))
		return unread;
	if (!*now_ns)
		*now_ns = clock_monotonic_ns();
	if (known->text && event_ns > known->failed_ns && !target->gone_ns)
		start_reading(target, known, *now_ns);
	if (known->text)
		return known->text;
	lookup_waits(target->host_pid);
	return unread;
}

/* ---- */

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
			text = resolve(target, &frames[i], event_ns, &now_ns);
		lookups.gone |= text == gone;
		lookups.unread |= text == unread;
		if (text[0])
			texts->items[n++] = text;
	}
	if (n && info->cut)
		texts->items[n++] = "<cut>";
	return (struct column_strings){ texts->items, n };
}
