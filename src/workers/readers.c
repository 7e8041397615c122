// SPDX-License-Identifier: Apache-2.0
/* Worker threads for blocking reads. See readers.h. */
#include "workers/readers.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/log.h"
#include "base/clock.h"
#include "base/thread.h"
#include "host/proc.h"
#include "workers/process_queue.h"
#include "base/util.h"

enum {
	MAX_JOBS = 8192,	/* limit of jobs over all processes */
	MAX_JOBS_OF_ONE = 1024, /* limit per process */
	STACK_BYTES = 512 << 10,
};
/*
 * Typical durations: memory of a process 10 us, swapped memory 10 ms, symbols of a large file 0.1
 * s.
 */
static const uint64_t ROUND_NS = 100 * NSEC_PER_MSEC;
static const uint64_t ONE_MORE_NS = 20 * NSEC_PER_MSEC;
static const uint64_t STOP_NS = 200 * NSEC_PER_MSEC;

/* Protected by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct process_queues queues = { .round = 1 };
static struct job_list finished;
static size_t n_readers, n_idle, n_jobs;
static uint64_t progress_ns; /* time of the last start of a job or thread */
static atomic_bool stopping;
static uint64_t round_ns; /* start of the current round */
static struct readers_cpu discovery_cpu;

static int event_fd = -1;

/* ---- under the lock ---- */

static void finish_job(struct process_queue *q, struct job *job)
{
	const uint64_t one = 1;
	bool first = !finished.first;

	process_queue_end(&queues, q);
	n_jobs--;
	job_list_append(&finished, job);
	if (first && write(event_fd, &one, sizeof(one)) < 0)
		log_debug("readers: %s", strerror(errno)); /* the collector polls, too */
	if (q->jobs.first)
		process_queue_make_ready(&queues, q);
	else
		process_queue_free(&queues, q);
	if (queues.first_ready && n_idle) /* another job of the owner may run */
		pthread_cond_signal(&work);
}

/* ---- worker thread ---- */

static uint64_t thread_cpu_ns(void)
{
	return clock_thread_cpu_ns() + reader_process_thread_cpu_ns();
}

static void *run_jobs(void *nothing)
{
	struct reader_watch watch = { 0 };

	reader_process_watch(&watch);
	pthread_mutex_lock(&lock);
	while (!stopping) {
		struct process_queue *q = process_queue_take_ready(&queues);
		struct job *job;
		uint64_t cpu_ns;

		if (!q) {
			/* was stalled and has been replaced by another thread */
			if (n_idle)
				break;
			n_idle++;
			pthread_cond_wait(&work, &lock);
			n_idle--;
			continue;
		}
		job = job_list_take_first(&q->jobs);
		process_queue_begin(&queues, q, &watch);
		watch.give_up = false;
		watch.host_pid = job->host_pid;
		watch.file = job->file;
		progress_ns = clock_monotonic_ns();
		pthread_mutex_unlock(&lock);
		cpu_ns = thread_cpu_ns();
		job->run(job);
		job->ran = true;
		cpu_ns = thread_cpu_ns() - cpu_ns;
		pthread_mutex_lock(&lock);
		if (job->finds_processes)
			discovery_cpu.readers_ns += cpu_ns;
		finish_job(q, job);
	}
	pthread_mutex_unlock(&lock);
	reader_process_end();
	pthread_mutex_lock(&lock);
	n_readers--;
	pthread_mutex_unlock(&lock);
	return nothing;
}

static void start_reader(void)
{
	int err = thread_start_detached(run_jobs, NULL, STACK_BYTES);

	if (err)
		log_warn("cannot start a thread that reads processes: %s", strerror(err));
	else
		n_readers++;
}

/* Starts a further thread only if all threads are busy or stalled. */
static void start_readers_if_needed(uint64_t now_ns)
{
	if (!queues.first_ready || n_idle || n_readers + reader_processes_hung() >= READERS_MAX ||
	    (n_readers && now_ns < progress_ns + ONE_MORE_NS))
		return;
	progress_ns = now_ns;
	start_reader();
}

/* ---- collector thread ---- */

static bool is_full(const struct process_queue *q)
{
	return stopping || n_jobs >= MAX_JOBS ||
	       (q && (q->n >= MAX_JOBS_OF_ONE || process_queue_stalled(&queues, q)));
}

bool readers_owner_is_full(uint32_t host_pid)
{
	bool full;

	pthread_mutex_lock(&lock);
	full = process_queues_count_stalled(&queues) + reader_processes_hung() >=
		       READERS_OF_OWNER &&
	       process_queues_owner_stalled(&queues, proc_owner(host_pid));
	pthread_mutex_unlock(&lock);
	return full;
}

static bool file_is_stalled(struct read_file file)
{
	bool stalled = false;

	pthread_mutex_lock(&lock);
	for (const struct process_queue *q = queues.busy; q && file.ino; q = q->next)
		stalled |= process_queue_stalled(&queues, q) && q->watch->file.ino == file.ino &&
			   q->watch->file.dev == file.dev;
	pthread_mutex_unlock(&lock);
	return stalled;
}

/* Jobs on a target with a stalled read are refused until the read answers. */
static bool is_hopeless(const struct job *job)
{
	return (reader_processes_hung() && reader_process_hangs_on(job->host_pid, job->file)) ||
	       file_is_stalled(job->file) || readers_owner_is_full(job->host_pid);
}

static bool accept_job(struct job *job)
{
	struct process_queue *q = process_queue_find(&queues, job->host_pid);

	if (is_full(q))
		return false;
	if (!q)
		q = process_queue_new(&queues, job->host_pid);
	if (!q)
		return false;
	if (!q->jobs.first && !q->since_round)
		process_queue_make_ready(&queues, q);
	job_list_append(&q->jobs, job);
	q->n++;
	n_jobs++;
	return true;
}

bool readers_submit(struct job *job)
{
	bool accepted;

	if (is_hopeless(job))
		return false;
	readers_fd(); /* created before the first writer */
	pthread_mutex_lock(&lock);
	accepted = accept_job(job);
	start_readers_if_needed(clock_monotonic_ns());
	if (n_idle)
		pthread_cond_signal(&work);
	pthread_mutex_unlock(&lock);
	return accepted;
}

bool readers_stalled_by(uint32_t host_pid)
{
	const struct process_queue *q;
	bool stalled;

	pthread_mutex_lock(&lock);
	q = process_queue_find(&queues, host_pid);
	stalled = q ? process_queue_stalled(&queues, q) || process_queue_starved(&queues, q)
		    : reader_process_hangs_on(host_pid, (struct read_file){ 0 });
	pthread_mutex_unlock(&lock);
	return stalled;
}

bool readers_starved(uint32_t host_pid)
{
	const struct process_queue *q;
	bool waits;

	pthread_mutex_lock(&lock);
	q = process_queue_find(&queues, host_pid);
	waits = q && process_queue_starved(&queues, q);
	pthread_mutex_unlock(&lock);
	return waits;
}

int readers_fd(void)
{
	if (event_fd < 0)
		event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return event_fd;
}

uint64_t readers_rounds(void)
{
	return queues.round; /* written by this thread only */
}

void readers_complete(void (*each)(void *context, uint32_t host_pid), void *context)
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
		queues.round++;
	}
	start_readers_if_needed(now_ns);
	pthread_mutex_unlock(&lock);
	while ((job = job_list_take_first(&taken))) {
		uint32_t host_pid = job->host_pid;
		uint64_t cpu_ns = clock_thread_cpu_ns();
		bool finds_processes = job->finds_processes;

		job->done(job);
		if (finds_processes)
			discovery_cpu.collector_ns += clock_thread_cpu_ns() - cpu_ns;
		else if (each)
			each(context, host_pid);
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
	const struct process_queue *q;
	bool any;

	pthread_mutex_lock(&lock);
	any = finished.first;
	for (q = queues.all; q && !any; q = q->hh.next)
		any = !process_queue_stalled(&queues, q) && !process_queue_starved(&queues, q);
	pthread_mutex_unlock(&lock);
	return any;
}

/* Returns jobs that were never started. */
static void drop_unstarted(void)
{
	struct process_queue *q, *next;
	struct job *job;

	HASH_ITER(hh, queues.all, q, next)
	{
		while ((job = job_list_take_first(&q->jobs)))
			job_list_append(&finished, job);
		if (q->watch)
			process_queue_give_up(q);
		else
			process_queue_free(&queues, q);
	}
	queues.first_ready = NULL;
}

bool readers_stop(void)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	uint64_t until_ns = clock_monotonic_ns() + STOP_NS;
	bool over = false, all = false;

	while (!over) {
		pthread_mutex_lock(&lock);
		stopping = true;
		drop_unstarted();
		pthread_cond_broadcast(&work);
		all = !n_readers;
		over = all || clock_monotonic_ns() > until_ns;
		pthread_mutex_unlock(&lock);
		readers_complete(NULL, NULL);
		if (!over)
			nanosleep(&pause, NULL);
	}
	return all;
}
