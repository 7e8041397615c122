// SPDX-License-Identifier: Apache-2.0
/* Worker threads for blocking reads. See readers.h. */
#include "workers/readers.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <uthash.h>

#include "base/log.h"
#include "base/clock.h"
#include "host/proc.h"
#include "workers/reader_process.h"
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

struct job_list {
	struct job *first, *last;
};

/* Queue of jobs per process. */
struct process_queue {
	uint32_t host_pid;
	struct job_list jobs;	    /* without the running job */
	size_t n;		    /* including the running job */
	uint64_t since_round;	    /* round of the running job's start; 0: none running */
	uint64_t waits_since;	    /* round of entering the ready list */
	uint64_t owner;		    /* 0: unknown */
	struct reader_watch *watch; /* watch of the thread running the job */
	struct process_queue *next; /* next in the ready or busy list */
	UT_hash_handle hh;
};

/* Protected by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct process_queue *queues;		       /* all */
static struct process_queue *first_ready, *last_ready; /* processes with a runnable job */
static struct process_queue *busy;		       /* processes with a running job */
static struct job_list finished;
static size_t n_readers, n_idle, n_busy, n_jobs;
static uint64_t progress_ns; /* time of the last start of a job or thread */
static atomic_bool stopping;
static uint64_t round = 1, round_ns; /* number and start of the current round */
static struct readers_cpu discovery_cpu;

static int event_fd = -1;

/* ---- under the lock ---- */

static void append_job(struct job_list *list, struct job *job)
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

static void make_ready(struct process_queue *q)
{
	q->next = NULL;
	q->waits_since = round;
	if (first_ready)
		last_ready->next = q;
	else
		first_ready = q;
	last_ready = q;
}

static struct process_queue *find_queue(uint32_t host_pid)
{
	struct process_queue *q;

	HASH_FIND(hh, queues, &host_pid, sizeof(host_pid), q);
	return q;
}

static bool is_stalled(const struct process_queue *q)
{
	return q->since_round && round > q->since_round + READERS_PATIENCE;
}

/* Whether the process waits because too many jobs of its owner are stalled. */
static bool is_starved(const struct process_queue *q)
{
	return !q->since_round && round > q->waits_since + 3 * READERS_PATIENCE;
}

/* Determined only if readers are short, since the look-up costs microseconds. */
static uint64_t owner_of(struct process_queue *q)
{
	if (!q->owner)
		q->owner = proc_owner(q->host_pid);
	return q->owner;
}

/* Share of an owner: at most as much as remains, so that a further owner finds room. */
static size_t share_of_one(size_t most, size_t all, size_t used)
{
	size_t left = all > used ? all - used : 0;

	return left < most ? left : most;
}

/* Whether the owner's share is not used up. */
static bool has_share(const struct reader_use *own, uint64_t owner)
{
	size_t used = n_busy + reader_processes_hung();

	return own->owner < share_of_one(READERS_OF_OWNER, READERS_MAX, used) &&
	       (!(reader_tenant(owner) & 1) ||
		own->tenant < share_of_one(READERS_OF_TENANT, READERS_MAX, used));
}

/* `stalled`: stalled jobs only. */
static struct reader_use used_by(uint64_t owner, bool stalled)
{
	struct reader_use use = reader_processes_hung_of(owner);

	for (struct process_queue *q = busy; q; q = q->next) {
		if (stalled && !is_stalled(q))
			continue;
		use.owner += owner_of(q) == owner;
		use.tenant += reader_tenant(owner_of(q)) == reader_tenant(owner);
	}
	return use;
}

static bool owner_has_room(struct process_queue *q)
{
	struct reader_use use;

	if (n_busy + reader_processes_hung() < READERS_OF_OWNER)
		return true;
	use = used_by(owner_of(q), false);
	return has_share(&use, owner_of(q));
}

/* The first ready process allowed to run. NULL: none. */
static struct process_queue *take_ready(void)
{
	struct process_queue **at = &first_ready, *before = NULL, *q;

	while (*at && !owner_has_room(*at)) {
		before = *at;
		at = &before->next;
	}
	q = *at;
	if (q)
		*at = q->next;
	if (q && last_ready == q)
		last_ready = before;
	return q;
}

static void give_up(struct process_queue *q)
{
	q->watch->owner = owner_of(q);
	q->watch->give_up = true;
}

static void unlist_busy(struct process_queue *q)
{
	struct process_queue **at = &busy;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
}

static void free_queue(struct process_queue *q)
{
	HASH_DEL(queues, q);
	free(q);
}

static void finish_job(struct process_queue *q, struct job *job)
{
	const uint64_t one = 1;
	bool first = !finished.first;

	unlist_busy(q);
	q->since_round = 0;
	q->watch = NULL;
	n_busy--;
	q->n--;
	n_jobs--;
	append_job(&finished, job);
	if (first && write(event_fd, &one, sizeof(one)) < 0)
		log_debug("readers: %s", strerror(errno)); /* the collector polls, too */
	if (q->jobs.first)
		make_ready(q);
	else
		free_queue(q);
	if (first_ready && n_idle) /* another job of the owner may run */
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
		struct process_queue *q = take_ready();
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
		job = take_first(&q->jobs);
		q->since_round = round;
		q->watch = &watch;
		q->next = busy;
		busy = q;
		n_busy++;
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
	pthread_attr_t attributes;
	pthread_t thread;
	int err;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	err = pthread_create(&thread, &attributes, run_jobs, NULL);
	pthread_attr_destroy(&attributes);
	if (err)
		log_warn("cannot start a thread that reads processes: %s", strerror(err));
	else
		n_readers++;
}

/* Starts a further thread only if all threads are busy or stalled. */
static void start_readers_if_needed(uint64_t now_ns)
{
	if (!first_ready || n_idle || n_readers + reader_processes_hung() >= READERS_MAX ||
	    (n_readers && now_ns < progress_ns + ONE_MORE_NS))
		return;
	progress_ns = now_ns;
	start_reader();
}

/* ---- collector thread ---- */

static bool is_full(const struct process_queue *q)
{
	return stopping || n_jobs >= MAX_JOBS || (q && (q->n >= MAX_JOBS_OF_ONE || is_stalled(q)));
}

static size_t count_stalled(void)
{
	size_t n = 0;

	for (const struct process_queue *q = busy; q; q = q->next)
		n += is_stalled(q);
	return n;
}

bool readers_owner_is_full(uint32_t host_pid)
{
	bool full;

	pthread_mutex_lock(&lock);
	full = count_stalled() + reader_processes_hung() >= READERS_OF_OWNER;
	if (full) {
		uint64_t owner = proc_owner(host_pid);
		const struct reader_use use = used_by(owner, true);

		full = use.owner && !has_share(&use, owner);
	}
	pthread_mutex_unlock(&lock);
	return full;
}

static bool file_is_stalled(struct read_file file)
{
	bool stalled = false;

	pthread_mutex_lock(&lock);
	for (const struct process_queue *q = busy; q && file.ino; q = q->next)
		stalled |= is_stalled(q) && q->watch->file.ino == file.ino &&
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

static struct process_queue *new_queue(uint32_t host_pid)
{
	struct process_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->host_pid = host_pid;
	HASH_ADD(hh, queues, host_pid, sizeof(q->host_pid), q);
	return q;
}

static bool accept_job(struct job *job)
{
	struct process_queue *q = find_queue(job->host_pid);

	if (is_full(q))
		return false;
	if (!q)
		q = new_queue(job->host_pid);
	if (!q)
		return false;
	if (!q->jobs.first && !q->since_round)
		make_ready(q);
	append_job(&q->jobs, job);
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
	q = find_queue(host_pid);
	stalled = q ? is_stalled(q) || is_starved(q)
		    : reader_process_hangs_on(host_pid, (struct read_file){ 0 });
	pthread_mutex_unlock(&lock);
	return stalled;
}

bool readers_starved(uint32_t host_pid)
{
	const struct process_queue *q;
	bool waits;

	pthread_mutex_lock(&lock);
	q = find_queue(host_pid);
	waits = q && is_starved(q);
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
	return round; /* written by this thread only */
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
		round++;
	}
	start_readers_if_needed(now_ns);
	pthread_mutex_unlock(&lock);
	while ((job = take_first(&taken))) {
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
	for (q = queues; q && !any; q = q->hh.next)
		any = !is_stalled(q) && !is_starved(q);
	pthread_mutex_unlock(&lock);
	return any;
}

/* Returns jobs that were never started. */
static void drop_unstarted(void)
{
	struct process_queue *q, *next;
	struct job *job;

	HASH_ITER(hh, queues, q, next)
	{
		while ((job = take_first(&q->jobs)))
			append_job(&finished, job);
		if (q->watch)
			give_up(q);
		else
			free_queue(q);
	}
	first_ready = NULL;
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
