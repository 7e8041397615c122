// SPDX-License-Identifier: Apache-2.0
/* Names of threads. See names.h. */
#include "rows/names.h"

#include <string.h>

#include "base/retry_queue.h"
#include "events/process.h"
#include "base/clock.h"
#include "process/process_job.h"
#include "rows/row_context.h"
#include "base/util.h"

enum {
	NAME_READS = 200,	   /* reads per name: a class has few attributes */
	ELSEWHERE_READS = 4000,	   /* the same with a search of other interpreters' modules */
	MAX_KNOWN_THREADS = 16384, /* over all processes */
	MAX_PENDING = 4096,	   /* threads that were just started */
	FIRST_MISS_MS = 10,
	MAX_MISSES = 9,
};

/* A name is read again after the first time, and twice as late each time it is the same. */
static const uint64_t NAME_KEEP_NS = NSEC_PER_SEC, NAME_KEEP_MAX_NS = 4 * NSEC_PER_SEC;

/* Budget for started threads without a row: each costs a name after a delay. */
static struct token_bucket started_bucket = { .per_second = 100,
					      .burst_ms = 40000 }; /* a pool of 4,000 */

/* A name costs about 20 us: at most 2 % of a core. */
static struct token_bucket names_bucket = { .per_second = 1000, .burst_ms = 300 };

struct known_thread {
	uint32_t host_tid;
	uint32_t misses;
	uint64_t started_ns; /* earlier events belong to another thread; 0: start not seen */
	uint64_t look_again_ns, keep_ns;
	bool being_read;
	bool is_absent; /* at the last look, module threading had no such thread */
	char *name;	/* NULL: unknown */
	UT_hash_handle hh;
};

/* A thread just started. */
struct pending {
	struct retry_item retry;
	struct thread_id thread;
};

/* Passed to a reader process and back. */
struct name_reading {
	struct process_memory memory;
	struct thread_id thread;
	int err;
	bool was_asked; /* module threading: its list of threads was found */
	size_t bytes_read;
	char name[PYTHON_THREAD_NAME_MAX];
};

struct name_job {
	struct process_job job;
	uint64_t started_ns;	 /* start time: distinguishes reused tids */
	struct pending *pending; /* a thread just started; NULL: requested by a row */
	struct name_reading reading;
};

/* A thread appears in threading._active when first running Python code, possibly after a GIL wait:
 * several delays. */
static void on_due(struct retry_item *item, uint64_t now_ns);
static struct retry_queue pending_queue = { .delays_ms = { 4, 8, 20, 60, 200 },
					    .max = MAX_PENDING,
					    .run = on_due };

static size_t n_known;

/* ---- cache ---- */

static void drop_thread(struct process *process, struct known_thread *known)
{
	HASH_DEL(process->known_threads, known);
	n_known--;
	free(known->name);
	free(known);
}

static void forget_all(struct process *process)
{
	struct known_thread *known, *next;

	HASH_ITER(hh, process->known_threads, known, next)
	drop_thread(process, known);
}

static struct known_thread *find_thread(const struct process *process, uint32_t host_tid)
{
	struct known_thread *known;

	HASH_FIND(hh, process->known_threads, &host_tid, sizeof(host_tid), known);
	return known;
}

static struct known_thread *add_thread(struct process *process, uint32_t host_tid)
{
	struct known_thread *known = find_thread(process, host_tid);

	if (known)
		return known;
	/* names are borrowed until the next tick: no eviction here */
	if (n_known >= 2 * MAX_KNOWN_THREADS || !(known = calloc(1, sizeof(*known))))
		return NULL;
	known->host_tid = host_tid;
	n_known++;
	process->forget_threads = forget_all;
	HASH_ADD(hh, process->known_threads, host_tid, sizeof(known->host_tid), known);
	return known;
}

/* ---- look-up ---- */

static void read_in_process(void *argument, struct read_extra *extra)
{
	struct name_reading *n = argument;
	struct process_memory *m = &n->memory;
	struct remote r = remote_of(m->host_pid, &m->offsets, NAME_READS);

	(void)extra;
	n->err = -ENOENT;
	n->was_asked = process_memory_find_threads(m, clock_monotonic_ns());
	if (n->was_asked)
		n->err = python_thread_name(&r, &m->learned.threads, n->thread.ident, n->thread.tid,
					    n->thread.tid == n->thread.pid, n->name);
	n->bytes_read = r.bytes_read;
	if (n->err == -ENOENT && m->learned.runtime) {
		r = remote_of(m->host_pid, &m->offsets, ELSEWHERE_READS);
		n->err = python_thread_name_elsewhere(&r, m->learned.runtime, n->thread.ident,
						      n->thread.tid, n->name);
		n->bytes_read += r.bytes_read;
	}
}

/* An ended thread keeps its name. */
static void take_name(struct known_thread *known, const char *name, uint64_t now_ns)
{
	bool same = name && known->name && !strcmp(name, known->name);
	char *copy = name && !same ? strdup(name) : NULL;

	known->being_read = false;
	if (same || copy) {
		known->keep_ns = same ? known->keep_ns * 2 : NAME_KEEP_NS;
		if (known->keep_ns > NAME_KEEP_MAX_NS)
			known->keep_ns = NAME_KEEP_MAX_NS;
		known->look_again_ns = now_ns + known->keep_ns;
		known->misses = 0;
	}
	if (copy) {
		free(known->name);
		known->name = copy;
	}
	if (same || copy)
		return;
	known->look_again_ns = now_ns + (FIRST_MISS_MS * NSEC_PER_MSEC << known->misses);
	if (known->misses < MAX_MISSES)
		known->misses++;
}

static void started_is_read(struct pending *pending, struct known_thread *known, uint64_t now_ns);

static void name_is_read(struct process_job *job)
{
	const struct name_job *j = (const struct name_job *)job;
	const struct name_reading *n = &j->reading;
	bool is_read = job->job.ran && !job->err && !n->err;
	struct known_thread *known = find_thread(job->process, n->thread.host_tid);
	uint64_t now_ns = clock_monotonic_ns();

	token_bucket_charge(&names_bucket, n->bytes_read);
	if (known && known->started_ns != j->started_ns)
		known = NULL; /* replaced by another thread */
	if (known) {
		take_name(known, is_read ? n->name : NULL, now_ns);
		if (job->job.ran && !job->err && n->was_asked && (!n->err || n->err == -ENOENT))
			known->is_absent = n->err; /* other errors say nothing */
	}
	if (j->pending)
		started_is_read(j->pending, known, now_ns);
}

/* False: cannot be read now. */
static bool start_reading(struct process *process, struct known_thread *known,
			  const struct thread_id *thread, struct pending *pending)
{
	struct name_job *j = malloc(sizeof(*j));

	if (!j)
		return false;
	j->job = (struct process_job){ .read = read_in_process,
				       .argument = &j->reading,
				       .size = sizeof(j->reading),
				       .done = name_is_read };
	j->reading.thread = *thread;
	j->reading.bytes_read = 0;
	j->started_ns = known->started_ns;
	j->pending = pending;
	known->being_read = process_job_submit(&j->job, process);
	return known->being_read;
}

static const char *find_name(struct row_context *context, struct process *process,
			     const struct thread_id *thread, uint64_t event_ns)
{
	struct known_thread *known = add_thread(process, thread->host_tid);

	if (!known || event_ns < known->started_ns)
		return NULL;
	if (!known->being_read && event_ns >= known->look_again_ns && !process->ended_ns &&
	    token_bucket_take(&names_bucket, 1, known->name != NULL, clock_monotonic_ns()))
		start_reading(process, known, thread, NULL);
	if (known->being_read)
		row_waits_for(context, process->host_pid);
	return known->name;
}

const char *names_find(struct row_context *context, const struct thread_id *thread,
		       uint64_t event_ns)
{
	struct process *process = row_process(context, thread->host_pid, event_ns);
	const char *name = process ? find_name(context, process, thread, event_ns) : NULL;

	context->unnamed |= process && !name;
	return name ? name : "";
}

bool names_is_unknown(struct row_context *context, uint32_t host_pid, uint32_t host_tid,
		      uint64_t event_ns)
{
	struct process *process = row_process(context, host_pid, event_ns);
	struct known_thread *known = process ? find_thread(process, host_tid) : NULL;

	return known && event_ns >= known->started_ns && known->is_absent && !known->name;
}

/* ---- started threads ---- */

static void give_up(struct pending *p)
{
	retry_item_free(&pending_queue, &p->retry);
}

static void try_again(struct pending *p, uint64_t now_ns)
{
	if (!retry_item_wait(&pending_queue, &p->retry, p->retry.step + 1, now_ns))
		give_up(p);
}

static void started_is_read(struct pending *pending, struct known_thread *known, uint64_t now_ns)
{
	if (!known || known->name) {
		give_up(pending);
		return;
	}
	known->misses = 0; /* a row may retry at once */
	known->look_again_ns = 0;
	try_again(pending, now_ns);
}

void names_thread_started(const struct process_event *event)
{
	struct process *process = process_of_event(event->host_pid, event->time_ns);
	struct known_thread *known = process ? find_thread(process, event->host_tid) : NULL;
	struct pending *p;

	if (!process)
		return;
	if (known && (known->name || known->misses || known->being_read)) {
		drop_thread(process, known); /* another thread with the same tid */
		known = NULL;
	}
	if (known)
		known->started_ns = event->time_ns;
	/* in a storm of threads only names requested by rows are read */
	if (!token_bucket_take(&started_bucket, 1, false, event->time_ns))
		return;
	known = known ? known : add_thread(process, event->host_tid);
	if (!known)
		return;
	known->started_ns = event->time_ns;
	p = retry_item_new(&pending_queue, sizeof(*p));
	if (!p)
		return;
	p->thread = (struct thread_id){ .host_pid = event->host_pid,
					.host_tid = event->host_tid,
					.pid = event->pid,
					.tid = event->tid,
					.ident = event->ident };
	retry_item_wait(&pending_queue, &p->retry, 0, clock_monotonic_ns());
}

/* A thread that started a while ago. */
static void on_due(struct retry_item *item, uint64_t now_ns)
{
	struct pending *p = (struct pending *)item;
	struct process *process = process_of_event(p->thread.host_pid, now_ns);
	struct known_thread *known = process ? find_thread(process, p->thread.host_tid) : NULL;

	if (!known || known->name || process->ended_ns)
		give_up(p);
	else if (known->being_read) /* requested by a row */
		try_again(p, now_ns);
	else if (!token_bucket_take(&names_bucket, 1, false, now_ns) ||
		 !start_reading(process, known, &p->thread, p))
		give_up(p);
}

void names_tick(uint64_t now_ns)
{
	retry_queue_tick(&pending_queue, now_ns);
}

uint64_t names_due_in(uint64_t now_ns, uint64_t limit_ns)
{
	return retry_queue_due_in(&pending_queue, now_ns, limit_ns);
}

static void trim_threads(struct process *process)
{
	struct known_thread *known, *next;

	/* oldest first: least likely to be requested */
	HASH_ITER(hh, process->known_threads, known, next)
	{
		if (n_known <= MAX_KNOWN_THREADS)
			return;
		drop_thread(process, known);
	}
}

void names_trim(void)
{
	for (struct process *p = process_next(NULL); p && n_known > MAX_KNOWN_THREADS;
	     p = process_next(p))
		trim_threads(p);
}

void names_done(void)
{
	retry_queue_clear(&pending_queue);
}
