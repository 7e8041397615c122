// SPDX-License-Identifier: Apache-2.0
/* Names of threads. See names.h. */
#include "python/names.h"

#include <string.h>

#include "delay_queue.h"
#include "events/process.h"
#include "probe/clock.h"
#include "python/target.h"
#include "util.h"

enum {
	NAME_READS = 200,	   /* for one name: a class has a handful of attributes */
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
	char *name; /* NULL: not known */
	UT_hash_handle hh;
};

/* A thread that was just started. */
struct pending {
	struct delayed delayed;
	struct thread_id thread;
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

static struct known_thread *know(struct target *target, uint32_t host_tid)
{
	struct known_thread *known;

	HASH_FIND(hh, target->known_threads, &host_tid, sizeof(host_tid), known);
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

/* Reads the name anew. A thread that is not there any more keeps the one it had. */
static void look(struct target *target, struct known_thread *known, const struct thread_id *thread,
		 uint64_t now_ns)
{
	struct remote r = remote_of(target->host_pid, &target->offsets, NAME_READS);
	char name[PYTHON_THREAD_NAME_MAX];

	if (target_find_threads(target, now_ns) &&
	    !python_thread_name(&r, &target->threads, thread->ident, thread->tid,
				thread->tid == thread->pid, name)) {
		known->look_again_ns = now_ns + NAME_KEEP_NS;
		known->misses = 0;
		if (known->name && !strcmp(known->name, name))
			return;
		free(known->name);
		known->name = strdup(name);
		return;
	}
	known->look_again_ns = now_ns + (FIRST_MISS_MS * NSEC_PER_MSEC << known->misses);
	if (known->misses < MAX_MISSES)
		known->misses++;
}

const char *names_find(const struct thread_id *thread, uint64_t event_ns)
{
	struct target *target = target_get(thread->host_pid, event_ns);
	struct known_thread *known = target ? know(target, thread->host_tid) : NULL;
	uint64_t now_ns;

	if (!known || event_ns < known->started_ns)
		return "";
	if (event_ns >= known->look_again_ns && !target->gone_ns) {
		now_ns = clock_monotonic_ns();
		if (allowance_take(&allowance, 1, known->name != NULL, now_ns))
			look(target, known, thread, now_ns);
	}
	return known->name ? known->name : "";
}

/* ---- threads that were just started ---- */

static void give_up(struct pending *p)
{
	n_pending--;
	free(p);
}

void names_thread_started(const struct process_event *event)
{
	struct target *target = target_get(event->host_pid, event->time_ns);
	struct known_thread *known = target ? know(target, event->host_tid) : NULL;
	struct pending *p;

	if (!known)
		return;
	if (known->name || known->misses) { /* of another thread, which had this tid before */
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

/* True when there is nothing more to do about it. */
static bool look_at_started(const struct thread_id *thread, uint64_t now_ns)
{
	struct target *target = target_get(thread->host_pid, now_ns);
	struct known_thread *known = target ? know(target, thread->host_tid) : NULL;

	if (!known || known->name)
		return true;
	if (!allowance_take(&allowance, 1, false, now_ns))
		return true;
	look(target, known, thread, now_ns);
	known->misses = 0; /* a row may ask at once */
	known->look_again_ns = known->name ? known->look_again_ns : 0;
	return known->name != NULL;
}

void names_tick(uint64_t now_ns)
{
	for (size_t step = 0; step < ARRAY_SIZE(queues); step++) {
		bool last = step + 1 == ARRAY_SIZE(queues);
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[step], now_ns))) {
			if (look_at_started(&p->thread, now_ns) || last)
				give_up(p);
			else
				delay_queue_push(&queues[step + 1], &p->delayed, now_ns);
		}
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
