// SPDX-License-Identifier: Apache-2.0
/* Threads for what may have to wait. See readers.h. */
#include "readers.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <uthash.h>

#include "log.h"
#include "probe/clock.h"
#include "util.h"

enum {
	MAX_READERS = 16,
	MAX_JOBS = 8192,	/* of all processes together */
	MAX_JOBS_OF_ONE = 1024, /* of one process */
	STACK_BYTES = 512 << 10,
};
/*
 * Memory of a healthy process is read in some 10 us, swapped out in some 10 ms; the symbols of a
 * large file in a tenth of a second.
 */
static const uint64_t ROUND_NS = 100 * NSEC_PER_MSEC;
static const uint64_t ONE_MORE_NS = 20 * NSEC_PER_MSEC;
static const uint64_t STOP_NS = 200 * NSEC_PER_MSEC;

struct job_list {
	struct job *first, *last;
};

/* A process with jobs. */
struct customer {
	uint32_t host_pid;
	struct job_list jobs;  /* the running one not among them */
	size_t n;	       /* with the running one */
	uint64_t since_round;  /* in which the running one was begun; 0: none is running */
	struct customer *next; /* whose turn it is after this one's */
	UT_hash_handle hh;
};

/* All under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct customer *customers;		/* all */
static struct customer *first_turn, *last_turn; /* those with a job that can be run */
static struct job_list finished;
static size_t n_readers, n_idle, n_jobs;
static uint64_t progress_ns; /* when a job was begun, or a reader started, last */
static bool stopping;
static uint64_t round = 1, round_ns; /* the number of the running one, and its begin */
static struct readers_cpu discovery_cpu;

static int event_fd = -1;

struct lookups lookups;

void lookup_waits(uint32_t host_pid)
{
	if (!readers_held_up_by(host_pid))
		lookups.waits_for = host_pid;
}

/* ---- under the lock ---- */

static void append(struct job_list *list, struct job *job)
{
	job->next = NULL;
	if (list->first)
		list->last->next = job;
	else
		list->first = job;
	list->last = job;
}

static struct job *take_first(struct job_list *list)
{
	struct job *job = list->first;

	if (job)
		list->first = job->next;
	return job;
}

static void queue_turn(struct customer *c)
{
	c->next = NULL;
	if (first_turn)
		last_turn->next = c;
	else
		first_turn = c;
	last_turn = c;
}

static struct customer *find_customer(uint32_t host_pid)
{
	struct customer *c;

	HASH_FIND(hh, customers, &host_pid, sizeof(host_pid), c);
	return c;
}

static bool is_held_up(const struct customer *c)
{
	return c->since_round && round > c->since_round + READERS_PATIENCE;
}

static void leave(struct customer *c)
{
	HASH_DEL(customers, c);
	free(c);
}

static void finish(struct customer *c, struct job *job)
{
	const uint64_t one = 1;
	bool first = !finished.first;

	c->since_round = 0;
	c->n--;
	n_jobs--;
	append(&finished, job);
	if (first && write(event_fd, &one, sizeof(one)) < 0)
		log_debug("readers: %s", strerror(errno)); /* the collector looks by itself, too */
	if (c->jobs.first)
		queue_turn(c);
	else
		leave(c);
}

/* ---- a reader ---- */

static void *read_jobs(void *nothing)
{
	pthread_mutex_lock(&lock);
	while (!stopping) {
		struct customer *c = first_turn;
		struct job *job;
		uint64_t cpu_ns;

		if (!c) {
			if (n_idle) /* it was held up, and another one has taken its place */
				break;
			n_idle++;
			pthread_cond_wait(&work, &lock);
			n_idle--;
			continue;
		}
		first_turn = c->next;
		job = take_first(&c->jobs);
		c->since_round = round;
		progress_ns = clock_monotonic_ns();
		pthread_mutex_unlock(&lock);
		cpu_ns = clock_thread_cpu_ns();
		job->run(job);
		job->ran = true;
		cpu_ns = clock_thread_cpu_ns() - cpu_ns;
		pthread_mutex_lock(&lock);
		if (job->finds_processes)
			discovery_cpu.readers_ns += cpu_ns;
		finish(c, job);
	}
	n_readers--;
	pthread_mutex_unlock(&lock);
	return nothing;
}

static void start_reader(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int err;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	err = pthread_create(&thread, &attributes, read_jobs, NULL);
	pthread_attr_destroy(&attributes);
	if (err)
		log_warn("cannot start a thread that reads processes: %s", strerror(err));
	else
		n_readers++;
}

/* One thread does it all, as long as nothing holds it up. */
static void see_to_readers(uint64_t now_ns)
{
	if (!first_turn || n_idle || n_readers == MAX_READERS ||
	    (n_readers && now_ns < progress_ns + ONE_MORE_NS))
		return;
	progress_ns = now_ns;
	start_reader();
}

/* ---- the collector's side ---- */

static bool is_full(const struct customer *c)
{
	return stopping || n_jobs >= MAX_JOBS || (c && (c->n >= MAX_JOBS_OF_ONE || is_held_up(c)));
}

static struct customer *new_customer(uint32_t host_pid)
{
	struct customer *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->host_pid = host_pid;
	HASH_ADD(hh, customers, host_pid, sizeof(c->host_pid), c);
	return c;
}

static bool accept_job(struct job *job)
{
	struct customer *c = find_customer(job->host_pid);

	if (is_full(c))
		return false;
	if (!c)
		c = new_customer(job->host_pid);
	if (!c)
		return false;
	if (!c->jobs.first && !c->since_round)
		queue_turn(c);
	append(&c->jobs, job);
	c->n++;
	n_jobs++;
	return true;
}

bool readers_give(struct job *job)
{
	bool accepted;

	readers_fd(); /* before there is a thread that writes to it */
	pthread_mutex_lock(&lock);
	accepted = accept_job(job);
	see_to_readers(clock_monotonic_ns());
	if (n_idle)
		pthread_cond_signal(&work);
	pthread_mutex_unlock(&lock);
	return accepted;
}

bool readers_held_up_by(uint32_t host_pid)
{
	const struct customer *c;
	bool held_up;

	pthread_mutex_lock(&lock);
	c = find_customer(host_pid);
	held_up = c && is_held_up(c);
	pthread_mutex_unlock(&lock);
	return held_up;
}

int readers_fd(void)
{
	if (event_fd < 0)
		event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return event_fd;
}

uint64_t readers_rounds(void)
{
	return round; /* only this thread changes it */
}

void readers_take(void (*each)(uint32_t host_pid))
{
	uint64_t times, now_ns = clock_monotonic_ns();
	struct job_list taken;
	struct job *job;

	if (event_fd < 0)
		return;
	if (read(event_fd, &times, sizeof(times)) < 0 && errno != EAGAIN)
		log_debug("readers: %s", strerror(errno));
	pthread_mutex_lock(&lock);
	taken = finished;
	finished.first = NULL;
	if (now_ns > round_ns + ROUND_NS) {
		round_ns = now_ns;
		round++;
	}
	see_to_readers(now_ns);
	pthread_mutex_unlock(&lock);
	while ((job = take_first(&taken))) {
		uint32_t host_pid = job->host_pid;
		uint64_t cpu_ns = clock_thread_cpu_ns();
		bool finds_processes = job->finds_processes;

		job->done(job);
		if (finds_processes)
			discovery_cpu.collector_ns += clock_thread_cpu_ns() - cpu_ns;
		else if (each)
			each(host_pid);
	}
}

struct readers_cpu readers_discovery_cpu(void)
{
	struct readers_cpu cpu;

	pthread_mutex_lock(&lock);
	cpu = discovery_cpu;
	pthread_mutex_unlock(&lock);
	return cpu;
}

bool readers_busy(void)
{
	const struct customer *c;
	bool busy;

	pthread_mutex_lock(&lock);
	busy = finished.first;
	for (c = customers; c && !busy; c = c->hh.next)
		busy = !is_held_up(c);
	pthread_mutex_unlock(&lock);
	return busy;
}

/* What was never begun is handed back as it is. */
static void drop_waiting(void)
{
	struct customer *c, *next;
	struct job *job;

	HASH_ITER(hh, customers, c, next)
	{
		while ((job = take_first(&c->jobs)))
			append(&finished, job);
		if (!c->since_round)
			leave(c);
	}
	first_turn = NULL;
}

bool readers_stop(void)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	uint64_t until_ns = clock_monotonic_ns() + STOP_NS;
	bool over = false, all = false;

	while (!over) {
		pthread_mutex_lock(&lock);
		stopping = true;
		drop_waiting();
		pthread_cond_broadcast(&work);
		all = !n_readers;
		over = all || clock_monotonic_ns() > until_ns;
		pthread_mutex_unlock(&lock);
		readers_take(NULL);
		if (!over)
			nanosleep(&pause, NULL);
	}
	return all;
}
