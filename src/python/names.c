// SPDX-License-Identifier: Apache-2.0
/* Names of threads. See names.h. */
#include "python/names.h"

#include <string.h>

#include "delay_queue.h"
#include "events/process.h"
#include "probe/clock.h"
#include "python/target.h"
#include "readers.h"
#include "util.h"

enum {
	NAME_READS = 200, /* for one name: a class has a handful of attributes */
	ELSEWHERE_READS =
		4000, /* the same where modules of other interpreters are looked through */
	MAX_KNOWN_THREADS = 16384, /* of all processes together */
	MAX_PENDING = 4096,	   /* threads that were just started */
	FIRST_MISS_MS = 10,
	MAX_MISSES = 9,
};

static const uint64_t NAME_KEEP_NS = NSEC_PER_SEC;

/* A name costs some 20 us: at most a fiftieth of a core goes into them. */
static struct allowance allowance = { .per_second = 1000, .burst_ms = 300 };

struct known_thread {
	uint32_t host_tid;
	uint32_t misses;
	uint64_t started_ns; /* the events before were another thread's; 0: not seen */
	uint64_t look_again_ns;
	bool being_read;
	char *name; /* NULL: not known */
	UT_hash_handle hh;
};

/* A thread that was just started. */
struct pending {
	struct delayed delayed;
	struct thread_id thread;
	size_t step; /* the queue that it came from */
};

struct name_job {
	struct job job;
	struct target *target;
	struct thread_id thread;
	uint64_t started_ns;	 /* which of the threads of that number */
	struct pending *pending; /* one that was just started; NULL: a row asks */
	int err;
	size_t bytes_read;
	char name[PYTHON_THREAD_NAME_MAX];
};

/* It stands in threading._active when it first runs Python, which may have to wait for the GIL. */
static struct delay_queue queues[] = { { 4 }, { 8 }, { 20 }, { 60 }, { 200 } };

static size_t n_known, n_pending;

/* ---- what is known ---- */

static void forget(struct target *target, struct known_thread *known)
{
	HASH_DEL(target->known_threads, known);
	n_known--;
	free(known->name);
	free(known);
}

void names_forget(struct target *target)
{
	struct known_thread *known, *next;

	HASH_ITER(hh, target->known_threads, known, next)
	forget(target, known);
}

static struct known_thread *find(const struct target *target, uint32_t host_tid)
{
	struct known_thread *known;

	HASH_FIND(hh, target->known_threads, &host_tid, sizeof(host_tid), known);
	return known;
}

static struct known_thread *know(struct target *target, uint32_t host_tid)
{
	struct known_thread *known = find(target, host_tid);

	if (known)
		return known;
	/* names are borrowed until the next tick: nothing may be forgotten here */
	if (n_known >= 2 * MAX_KNOWN_THREADS || !(known = calloc(1, sizeof(*known))))
		return NULL;
	known->host_tid = host_tid;
	n_known++;
	HASH_ADD(hh, target->known_threads, host_tid, sizeof(known->host_tid), known);
	return known;
}

/* ---- reading ---- */

static void read_name(struct job *job)
{
	struct name_job *j = (struct name_job *)job;
	struct remote r = remote_of(job->host_pid, &j->target->offsets, NAME_READS);

	j->err = -ENOENT;
	if (target_find_threads(j->target, clock_monotonic_ns()))
		j->err = python_thread_name(&r, &j->target->threads, j->thread.ident, j->thread.tid,
					    j->thread.tid == j->thread.pid, j->name);
	j->bytes_read = r.bytes_read;
	if (j->err == -ENOENT && j->target->runtime) {
		r = remote_of(job->host_pid, &j->target->offsets, ELSEWHERE_READS);
		j->err = python_thread_name_elsewhere(&r, j->target->runtime, j->thread.ident,
						      j->thread.tid, j->name);
		j->bytes_read += r.bytes_read;
	}
}

/* A thread that is not there any more keeps the name it had. */
static void take_name(struct known_thread *known, const char *name, uint64_t now_ns)
{
	char *copy = name ? strdup(name) : NULL;

	known->being_read = false;
	if (copy) {
		free(known->name);
		known->name = copy;
		known->look_again_ns = now_ns + NAME_KEEP_NS;
		known->misses = 0;
		return;
	}
	known->look_again_ns = now_ns + (FIRST_MISS_MS * NSEC_PER_MSEC << known->misses);
	if (known->misses < MAX_MISSES)
		known->misses++;
}

static void started_is_read(struct pending *pending, struct known_thread *known, uint64_t now_ns);

static void name_is_read(struct job *job)
{
	struct name_job *j = (struct name_job *)job;
	struct known_thread *known = j->target->dropped ? NULL
							: find(j->target, j->thread.host_tid);
	uint64_t now_ns = clock_monotonic_ns();

	allowance_charge(&allowance, j->bytes_read);
	if (known && known->started_ns != j->started_ns)
		known = NULL; /* another thread by now */
	if (known)
		take_name(known, job->ran && !j->err ? j->name : NULL, now_ns);
	if (j->pending)
		started_is_read(j->pending, known, now_ns);
	target_release(j->target);
	free(j);
}

/* False: it cannot be read now. */
static bool start_reading(struct target *target, struct known_thread *known,
			  const struct thread_id *thread, struct pending *pending)
{
	struct name_job *j = malloc(sizeof(*j));

	if (!j)
		return false;
	j->job = (struct job){ .host_pid = target->host_pid,
			       .run = read_name,
			       .done = name_is_read };
	j->target = target;
	j->thread = *thread;
	j->started_ns = known->started_ns;
	j->pending = pending;
	j->bytes_read = 0;
	if (!readers_give(&j->job)) {
		free(j);
		return false;
	}
	target_hold(target);
	known->being_read = true;
	return true;
}

static const char *find_name(struct target *target, const struct thread_id *thread,
			     uint64_t event_ns)
{
	struct known_thread *known = know(target, thread->host_tid);

	if (!known || event_ns < known->started_ns)
		return NULL;
	if (!known->being_read && event_ns >= known->look_again_ns && !target->gone_ns &&
	    allowance_take(&allowance, 1, known->name != NULL, clock_monotonic_ns()))
		start_reading(target, known, thread, NULL);
	if (known->being_read)
		lookup_waits(target->host_pid);
	return known->name;
}

const char *names_find(const struct thread_id *thread, uint64_t event_ns)
{
	struct target *target = target_get(thread->host_pid, event_ns);
	const char *name = target ? find_name(target, thread, event_ns) : NULL;

	lookups.unnamed |= target && !name;
	return name ? name : "";
}

/* ---- threads that were just started ---- */

static void give_up(struct pending *p)
{
	n_pending--;
	free(p);
}

static void try_again(struct pending *p, uint64_t now_ns)
{
	if (++p->step < ARRAY_SIZE(queues))
		delay_queue_push(&queues[p->step], &p->delayed, now_ns);
	else
		give_up(p);
}

static void started_is_read(struct pending *pending, struct known_thread *known, uint64_t now_ns)
{
	if (!known || known->name) {
		give_up(pending);
		return;
	}
	known->misses = 0; /* a row may ask at once */
	known->look_again_ns = 0;
	try_again(pending, now_ns);
}

void names_thread_started(const struct process_event *event)
{
	struct target *target = target_get(event->host_pid, event->time_ns);
	struct known_thread *known = target ? know(target, event->host_tid) : NULL;
	struct pending *p;

	if (!known)
		return;
	if (known->name || known->misses || known->being_read) { /* of another with this tid */
		forget(target, known);
		known = know(target, event->host_tid);
		if (!known)
			return;
	}
	known->started_ns = event->time_ns;
	if (n_pending >= MAX_PENDING || !(p = calloc(1, sizeof(*p))))
		return;
	n_pending++;
	p->thread = (struct thread_id){ .host_pid = event->host_pid,
					.host_tid = event->host_tid,
					.pid = event->pid,
					.tid = event->tid,
					.ident = event->ident };
	delay_queue_push(&queues[0], &p->delayed, clock_monotonic_ns());
}

static void look_at_started(struct pending *p, uint64_t now_ns)
{
	struct target *target = target_get(p->thread.host_pid, now_ns);
	struct known_thread *known = target ? find(target, p->thread.host_tid) : NULL;

	if (!known || known->name || target->gone_ns)
		give_up(p);
	else if (known->being_read) /* a row has asked */
		try_again(p, now_ns);
	else if (!allowance_take(&allowance, 1, false, now_ns) ||
		 !start_reading(target, known, &p->thread, p))
		give_up(p);
}

void names_tick(uint64_t now_ns)
{
	for (size_t step = 0; step < ARRAY_SIZE(queues); step++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[step], now_ns)))
			look_at_started(p, now_ns);
	}
}

uint64_t names_due_in(uint64_t now_ns, uint64_t limit_ns)
{
	return delay_queues_due_in(queues, ARRAY_SIZE(queues), now_ns, limit_ns);
}

void names_trim(struct target *target)
{
	struct known_thread *known, *next;

	/* in the order in which they came: the first are the least likely to be asked for */
	HASH_ITER(hh, target->known_threads, known, next)
	{
		if (n_known <= MAX_KNOWN_THREADS)
			return;
		forget(target, known);
	}
}

void names_done(void)
{
	for (size_t step = 0; step < ARRAY_SIZE(queues); step++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[step], UINT64_MAX)))
			give_up(p);
	}
}
