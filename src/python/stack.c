// SPDX-License-Identifier: Apache-2.0
/* From frames to texts. See stack.h. */
#include "python/stack.h"

#include <string.h>

#include "probe/clock.h"
#include "python/code.h"
#include "python/target.h"
#include "readers.h"
#include "util.h"

enum {
	FRAME_READS = 32,
	MAX_KNOWN_BYTES = 4 << 20,
	MAX_BYTES_OF_ONE = MAX_KNOWN_BYTES / 2,
	MAX_WAITING_BYTES = 512 << 10, /* read, and not yet taken by the collector */
};

/* 128 frames of long names and paths; whose names are longer still does not get larger rows. */
enum { MAX_TEXT_OF_STACK = 24 << 10 };

/* A place in the code that is new costs some 10 us. */
static struct allowance allowance = { .per_second = 2000, .burst_ms = 2000 };
static const struct allowance share = { .per_second = 400, .burst_ms = 2000 };

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
	size_t bytes_read;
	char *text; /* NULL: it could not be read, or there is no memory */
	size_t text_bytes;
};

static size_t known_bytes; /* of all processes together */
static _Atomic size_t waiting_bytes;

static struct known_frame *find(const struct target *target, const struct python_frame *frame)
{
	struct known_frame *known;

	HASH_FIND(hh, target->known_frames, frame, sizeof(*frame), known);
	return known;
}

static void count(struct target *target, size_t bytes)
{
	target->frames_bytes += bytes;
	known_bytes += bytes;
}

static void uncount(struct target *target, size_t bytes)
{
	target->frames_bytes -= bytes;
	known_bytes -= bytes;
}

/* What the allocator and the table need comes on top: some tens of bytes. */
static size_t bytes_of(const struct known_frame *known)
{
	return sizeof(*known) + (known->text && !known->failed_ns ? strlen(known->text) + 1 : 0);
}

static void forget(struct target *target, struct known_frame *known)
{
	HASH_DEL(target->known_frames, known);
	uncount(target, bytes_of(known));
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

void stack_trim(struct target *targets)
{
	struct target *most;

	do {
		most = targets;
		for (struct target *t = targets; t; t = t->hh.next)
			most = t->frames_bytes > most->frames_bytes ? t : most;
		if (!most || (known_bytes <= MAX_KNOWN_BYTES &&
			      most->frames_bytes <= MAX_BYTES_OF_ONE / 8 * 7))
			return;
		stack_forget(most);
	} while (known_bytes);
}

/* Texts are borrowed until the next tick: until then nothing may be forgotten. */
static bool is_full(const struct target *target)
{
	return target->frames_bytes > MAX_BYTES_OF_ONE || known_bytes > MAX_KNOWN_BYTES / 4 * 5;
}

/* ---- reading ---- */

static void read_frame(struct job *job)
{
	struct frame_job *j = (struct frame_job *)job;
	struct remote r = remote_of(job->host_pid, &j->target->offsets, FRAME_READS);
	char text[PYTHON_FRAME_TEXT_MAX];

	r.str_type = j->target->threads.str_type;
	j->err = python_frame_text(&r, &j->frame, text);
	if (!j->err) {
		j->text_bytes = strlen(text) + 1;
		waiting_bytes += j->text_bytes;
		j->text = waiting_bytes <= MAX_WAITING_BYTES ? strdup(text) : NULL;
	}
	j->bytes_read = r.bytes_read;
}

static void frame_is_read(struct job *job)
{
	struct frame_job *j = (struct frame_job *)job;
	struct known_frame *known = j->target->dropped ? NULL : find(j->target, &j->frame);

	allowance_charge(&allowance, j->bytes_read);
	waiting_bytes -= j->text_bytes;
	if (known && !known->text) {
		/* a copy, for what readers allocate stands in heaps of their own */
		known->text = j->text && !is_full(j->target) ? strdup(j->text) : NULL;
		if (known->text) {
			count(j->target, strlen(known->text) + 1);
		} else {
			known->text = j->err == -ESTALE || j->err == -ESRCH ? gone : unread;
			known->failed_ns = clock_monotonic_ns();
		}
	}
	target_release(j->target);
	free(j->text);
	free(j);
}

/* Nothing happens when it cannot be read now. */
static void start_reading(struct target *target, struct known_frame *known, uint64_t now_ns)
{
	struct frame_job *j;

	if (!target->frames_share.per_second)
		target->frames_share = share;
	if (is_full(target) || !allowance_take_share(&allowance, &target->frames_share, now_ns) ||
	    !(j = malloc(sizeof(*j))))
		return;
	j->job = (struct job){ .host_pid = target->host_pid,
			       .run = read_frame,
			       .done = frame_is_read };
	j->target = target;
	j->frame = known->frame;
	j->err = 0;
	j->text = NULL;
	j->text_bytes = 0;
	j->bytes_read = 0;
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

	if (!is_full(target))
		known = malloc(sizeof(*known));
	if (!known)
		return NULL;
	*known = (struct known_frame){ .frame = *frame, .text = unread, .failed_ns = 1 };
	count(target, sizeof(*known));
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
	size_t n = 0, bytes = 0;

	for (size_t i = 0;
	     target && i < info->n && i < PYTHON_STACK_MAX && bytes < MAX_TEXT_OF_STACK; i++) {
		unsigned int owner = frames[i].code & PYTHON_FRAME_OWNER;
		const char *text = "";

		if (!target->offsets.frame_owner_internal ||
		    owner < target->offsets.frame_owner_internal)
			text = resolve(target, &frames[i], event_ns, &now_ns);
		lookups.gone |= text == gone;
		lookups.unread |= text == unread;
		if (text[0])
			texts->items[n++] = text;
		bytes += strlen(text);
	}
	if (n && (info->cut || bytes >= MAX_TEXT_OF_STACK))
		texts->items[n++] = "<cut>";
	return (struct column_strings){ texts->items, n };
}

struct column_strings stack_of_event(const struct event_header *header,
				     const struct python_stack_info *info, const void *frames,
				     size_t size, struct stack_texts *texts)
{
	if (info->n * sizeof(struct python_frame) != size)
		return (struct column_strings){ 0 };
	return stack_resolve(header->host_pid, header->end_ns, frames, info, texts);
}
