// SPDX-License-Identifier: Apache-2.0
/* Python frames as texts. See stack.h. */
#include "rows/stack.h"

#include <string.h>

#include "base/clock.h"
#include "cpython/code.h"
#include "process/process_job.h"
#include "base/util.h"

enum {
	FRAME_READS = 32,
	MAX_KNOWN_BYTES = 4 << 20,
	MAX_BYTES_OF_ONE = MAX_KNOWN_BYTES / 2,
	MAX_WAITING_BYTES = 512 << 10, /* read, but not taken by the collector */
};

/* 128 frames with long names and paths; limits the size of a row. */
enum { MAX_TEXT_OF_STACK = 24 << 10 };

/* A new code location costs about 10 us. */
static struct token_bucket stack_bucket = { .per_second = 2000, .burst_ms = 2000 };
static const struct token_bucket process_bucket = { .per_second = 400, .burst_ms = 2000 };

static const char gone_text[] = "<gone>", unread_text[] = "<unread>";

/* Frames with equal keys are at the same location; `check` detects reused addresses. */
struct known_frame {
	struct python_frame frame;
	const char *text;   /* NULL: being read */
	uint64_t failed_ns; /* time of a failed read: later events may retry; 0: success */
	UT_hash_handle hh;
};

struct frame_job {
	struct process_job job;
	struct python_frame frame;
	size_t bytes_read;
	char *text; /* NULL: unreadable, or out of memory */
	size_t text_bytes;
};

static size_t known_bytes; /* over all processes */
static _Atomic size_t waiting_bytes;

static struct known_frame *find_frame(const struct process *process,
				      const struct python_frame *frame)
{
	struct known_frame *known;

	HASH_FIND(hh, process->known_frames, frame, sizeof(*frame), known);
	return known;
}

static void charge_frame(struct process *process, size_t bytes)
{
	process->frames_bytes += bytes;
	known_bytes += bytes;
}

static void uncharge_frame(struct process *process, size_t bytes)
{
	process->frames_bytes -= bytes;
	known_bytes -= bytes;
}

/* Without the overhead of allocator and table, some tens of bytes. */
static size_t bytes_of(const struct known_frame *known)
{
	return sizeof(*known) + (known->text && !known->failed_ns ? strlen(known->text) + 1 : 0);
}

static void drop_frame(struct process *process, struct known_frame *known)
{
	HASH_DEL(process->known_frames, known);
	uncharge_frame(process, bytes_of(known));
	if (!known->failed_ns)
		free((char *)known->text);
	free(known);
}

static void forget_all(struct process *process)
{
	struct known_frame *known, *next;

	HASH_ITER(hh, process->known_frames, known, next)
	drop_frame(process, known);
}

void stack_trim(void)
{
	struct process *most;

	do {
		most = process_next(NULL);
		for (struct process *p = most; p; p = process_next(p))
			most = p->frames_bytes > most->frames_bytes ? p : most;
		if (!most || (known_bytes <= MAX_KNOWN_BYTES &&
			      most->frames_bytes <= MAX_BYTES_OF_ONE / 8 * 7))
			return;
		forget_all(most);
	} while (known_bytes);
}

/* Texts are borrowed until the next tick: no eviction before. */
static bool is_full(const struct process *process)
{
	return process->frames_bytes > MAX_BYTES_OF_ONE || known_bytes > MAX_KNOWN_BYTES / 4 * 5;
}

/* ---- look-up ---- */

/* Passed to a reader process and back. */
struct frame_reading {
	uint32_t host_pid;
	struct python_offsets offsets;
	uint64_t str_type;
	struct python_frame frame;
	int err;
	size_t bytes_read;
	char text[PYTHON_FRAME_TEXT_MAX];
};

static void read_text(void *argument, struct read_extra *extra)
{
	struct frame_reading *f = argument;
	struct remote r = remote_of(f->host_pid, &f->offsets, FRAME_READS);

	(void)extra;
	r.str_type = f->str_type;
	f->err = python_frame_text(&r, &f->frame, f->text);
	f->bytes_read = r.bytes_read;
}

static void read_frame(struct job *job)
{
	struct frame_job *j = (struct frame_job *)job;
	struct frame_reading f;

	f.host_pid = job->host_pid;
	f.offsets = j->job.process->memory.offsets;
	f.str_type = j->job.process->memory.learned.threads.str_type;
	f.frame = j->frame;
	j->job.err = reader_process_run(read_text, &f, sizeof(f), NULL);
	if (j->job.err)
		return;
	j->job.err = f.err;
	j->bytes_read = f.bytes_read;
	if (!f.err) {
		j->text_bytes = strlen(f.text) + 1;
		waiting_bytes += j->text_bytes;
		j->text = waiting_bytes <= MAX_WAITING_BYTES ? strdup(f.text) : NULL;
	}
}

static void frame_is_read(struct process_job *job)
{
	struct frame_job *j = (struct frame_job *)job;
	struct process *process = job->process;
	struct known_frame *known = find_frame(process, &j->frame);

	token_bucket_charge(&stack_bucket, j->bytes_read);
	waiting_bytes -= j->text_bytes;
	if (known && !known->text) {
		/* a copy, since readers allocate in separate heaps */
		known->text = j->text && !is_full(process) ? strdup(j->text) : NULL;
		if (known->text) {
			charge_frame(process, strlen(known->text) + 1);
		} else {
			known->text = job->err == -ESTALE || job->err == -ESRCH ? gone_text
										: unread_text;
			known->failed_ns = clock_monotonic_ns();
		}
	}
	free(j->text);
}

/* Does nothing if the frame cannot be read now. */
static void start_reading(struct process *process, struct known_frame *known, uint64_t now_ns)
{
	struct frame_job *j;

	if (!process->frames_bucket.per_second)
		process->frames_bucket = process_bucket;
	if (is_full(process) ||
	    !token_bucket_take_share(&stack_bucket, &process->frames_bucket, now_ns) ||
	    !(j = malloc(sizeof(*j))))
		return;
	/* its own run(): the large text must not wait in the queue */
	*j = (struct frame_job){ .job = { .job.run = read_frame, .done = frame_is_read },
				 .frame = known->frame };
	if (!process_job_submit(&j->job, process))
		return;
	known->text = NULL;
	known->failed_ns = 0;
}

static struct known_frame *add_frame(struct process *process, const struct python_frame *frame)
{
	struct known_frame *known = NULL;

	if (!is_full(process))
		known = malloc(sizeof(*known));
	if (!known)
		return NULL;
	*known = (struct known_frame){ .frame = *frame, .text = unread_text, .failed_ns = 1 };
	charge_frame(process, sizeof(*known));
	process->forget_frames = forget_all;
	HASH_ADD(hh, process->known_frames, frame, sizeof(known->frame), known);
	return known;
}

static const char *resolve_frame(struct row_context *context, struct process *process,
				 const struct python_frame *frame, uint64_t event_ns,
				 uint64_t *now_ns)
{
	struct known_frame *known = find_frame(process, frame);

	if (known && known->text && !known->failed_ns)
		return known->text;
	if (!known && process->ended_ns)
		return gone_text;
	if (!known && !(known = add_frame(process, frame)))
		return unread_text;
	if (!*now_ns)
		*now_ns = clock_monotonic_ns();
	if (known->text && event_ns > known->failed_ns && !process->ended_ns)
		start_reading(process, known, *now_ns);
	if (known->text)
		return known->text;
	row_waits_for(context, process->host_pid);
	return unread_text;
}

/* ---- */

struct column_strings stack_resolve(struct row_context *context, uint32_t host_pid,
				    uint64_t event_ns, const struct python_frame *frames,
				    const struct python_stack_info *info, struct stack_texts *texts)
{
	struct process *process = info->n ? row_process(context, host_pid, event_ns) : NULL;
	uint64_t now_ns = 0;
	size_t n = 0, bytes = 0;

	for (size_t i = 0;
	     process && i < info->n && i < PYTHON_STACK_MAX && bytes < MAX_TEXT_OF_STACK; i++) {
		unsigned int owner = frames[i].code & PYTHON_FRAME_OWNER;
		const char *text = "";

		if (!process->memory.offsets.frame_owner_internal ||
		    owner < process->memory.offsets.frame_owner_internal)
			text = resolve_frame(context, process, &frames[i], event_ns, &now_ns);
		context->gone |= text == gone_text;
		context->unread |= text == unread_text;
		if (text[0])
			texts->items[n++] = text;
		bytes += strlen(text);
	}
	if (n && (info->cut || bytes >= MAX_TEXT_OF_STACK))
		texts->items[n++] = "<cut>";
	return (struct column_strings){ texts->items, n };
}

struct column_strings stack_of_event(struct row_context *context, const struct event_header *header,
				     const struct python_stack_info *info, const void *frames,
				     size_t size, struct stack_texts *texts)
{
	if (info->n * sizeof(struct python_frame) != size)
		return (struct column_strings){ 0 };
	return stack_resolve(context, header->host_pid, header->end_ns, frames, info, texts);
}
