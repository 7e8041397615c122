// SPDX-License-Identifier: Apache-2.0
/* Discoveries of all processes: running, scheduled and stalled. See discoveries.h. */
#include "process/discoveries.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/retry_queue.h"
#include "host/proc.h"
#include "process/discovery.h"
#include "process/process_table.h"
#include "process/tracking.h"
#include "workers/readers.h"

enum { MAX_RECHECKS = 65536, MAX_REQUESTS = 8192 };

/* A recheck of a process after exec(). */
struct recheck {
	struct retry_item retry;
	uint32_t host_pid;
	uint64_t start_time;
	enum binary_kind kind;
};

static void run_recheck(struct retry_item *item, uint64_t now_ns);

/* An executable linked to libpython maps the library within milliseconds. */
static struct retry_queue linked_rechecks = {
	.delays_ms = { 2, 5, 10, 20, 50, 100, 300, 1000, 3000, 10000 },
	.max = MAX_RECHECKS,
	.run = run_recheck,
};
/* Another may dlopen() libpython later (uWSGI's plugin and mod_wsgi as they start, editors). */
static struct retry_queue other_rechecks = {
	.delays_ms = { 1000, 5000, 60000 },
	.max = MAX_RECHECKS,
	.run = run_recheck,
};
/* First discoveries deferred since readers were overloaded or stalled by the process. */
static struct retry_queue first_rechecks = {
	.delays_ms = { 500 },
	.max = MAX_RECHECKS,
	.run = run_recheck,
};

/* A running discovery. */
struct discovery_request {
	struct discovery discovery;
	uint32_t host_pid;
	uint64_t start_time;
	size_t step; /* index of the next recheck */
	uint64_t begin_ns;
	bool of_start; /* the process existed before the agent */
	bool reported; /* reported as stalled */
	bool outdated; /* exec() happened since: a new discovery was started */
	UT_hash_handle hh;
};
/* Longer waits are reported; the readers' limit is shorter, see readers.h. */
static const uint64_t LONG_NS = 10 * NSEC_PER_SEC;
/* Children forked before the process is known as Python are missed by fork events: rescan after a
 * slow discovery. */
static const uint64_t SLOW_NS = 20 * NSEC_PER_MSEC;

static struct discovery_request *requests; /* by pid, in order of start, without outdated ones */
static size_t n_requests, n_of_start;
static bool of_start, stopped, rescan_wanted;
static struct log_limit too_many;

/* ---- deferred discoveries ---- */

static struct retry_queue *rechecks_of(enum binary_kind kind)
{
	return kind == BINARY_UNKNOWN		? &first_rechecks
	       : kind == BINARY_LINKS_LIBPYTHON ? &linked_rechecks
						: &other_rechecks;
}

/* `step`: index of the recheck; none after the last. */
static void schedule_recheck(uint32_t host_pid, uint64_t start_time, enum binary_kind kind,
			     size_t step)
{
	struct retry_queue *queue = rechecks_of(kind);
	struct recheck *p = retry_item_new(queue, sizeof(*p));

	if (!p) {
		log_ratelimited(
			&too_many,
			"too many processes wait for a check: all processes are checked again "
			"later");
		rescan_wanted = true;
		return;
	}
	p->host_pid = host_pid;
	p->start_time = start_time;
	p->kind = kind;
	if (!retry_item_wait(queue, &p->retry, step, clock_monotonic_ns()))
		retry_item_free(queue, &p->retry);
}

/* ---- discoveries ---- */

static struct discovery_request *find_request(uint32_t host_pid)
{
	struct discovery_request *request;

	HASH_FIND(hh, requests, &host_pid, sizeof(host_pid), request);
	return request;
}

static void uncount_start_request(struct discovery_request *request)
{
	n_of_start -= request->of_start;
	request->of_start = false;
}

static void mark_outdated(struct discovery_request *request)
{
	uncount_start_request(request);
	HASH_DEL(requests, request);
	request->outdated = true;
}

/* Children forked by a stalled process may be Pythons, too. */
static void discover_unanswered(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		if (p->file.unanswered && !find_request(p->host_pid))
			discover(p->host_pid, false);
	}
}

/* ---- stalled processes ---- */

/*
 * Adds the process as refused, so that children are seen and the reason is reported. apply_result()
 * corrects the entry if the process answers later.
 */
static void track_unanswered(uint32_t host_pid, uint64_t start_time,
			     const struct file_identity *identity, const struct why *why)
{
	static struct log_limit limit;
	const struct binary_file file = { .dev = identity->dev,
					  .ino = identity->ino,
					  .unanswered = true };

	if (process_find(host_pid) || proc_start_time(host_pid) != start_time)
		return;
	log_ratelimited(&limit, "process %u: %s", host_pid, why->text);
	tracking_add(host_pid, &file, why, start_time);
}

static void report_starved(uint32_t host_pid, uint64_t start_time)
{
	static const struct file_identity none;
	struct why why;

	why_fail(&why, 0,
		 "cannot tell whether the process is a Python: too many files of the same user "
		 "or container are stalled; retried when a stalled file answers");
	track_unanswered(host_pid, start_time, &none, &why);
}

static void report_stalled(struct discovery_request *request)
{
	struct why why;

	if (request->reported)
		return;
	request->reported = true;
	uncount_start_request(request);
	if (readers_starved(request->host_pid)) {
		report_starved(request->host_pid, request->start_time);
		return;
	}
	why_fail(&why, 0,
		 "cannot tell whether the process is a Python: %s has been stalled for %llu s; "
		 "watched once the read completes",
		 request->discovery.asking ? "the program file" : "/proc/PID or the program file",
		 (unsigned long long)((clock_monotonic_ns() - request->begin_ns) / NSEC_PER_SEC));
	track_unanswered(request->host_pid, request->start_time,
			 &request->discovery.request.identity, &why);
}

/* Applies the result of a discovery. */
static void apply_result(struct discovery_request *request)
{
	const struct discovery *discovery = &request->discovery;
	const struct process *before = process_find(request->host_pid);
	bool answers_now = before && before->file.unanswered;

	if (discovery->kind == BINARY_PYTHON)
		tracking_add(request->host_pid, &discovery->file, NULL, request->start_time);
	else if (discovery->kind == BINARY_REFUSED && discovery->why.text[0])
		tracking_add(request->host_pid, &discovery->file, &discovery->why,
			     request->start_time);
	else if (answers_now && discovery->kind != BINARY_UNKNOWN)
		tracking_remove(request->host_pid);
	if (discovery->kind != BINARY_PYTHON && discovery->kind != BINARY_REFUSED)
		schedule_recheck(request->host_pid, request->start_time, discovery->kind,
				 request->step);
	if (discovery->kind == BINARY_PYTHON &&
	    (discovery->before == BINARY_OTHER ||
	     clock_monotonic_ns() > request->begin_ns + SLOW_NS))
		rescan_wanted = true;
	if (discovery->kind == BINARY_UNKNOWN &&
	    clock_monotonic_ns() > request->begin_ns + NSEC_PER_SEC)
		report_stalled(request);
	if (answers_now && discovery->kind != BINARY_UNKNOWN)
		discover_unanswered();
}

static void on_discovered(struct discovery *discovery)
{
	struct discovery_request *request = (struct discovery_request *)discovery;

	if (!request->outdated) {
		mark_outdated(request);
		if (!stopped && proc_start_time(request->host_pid) == request->start_time)
			apply_result(request);
	}
	n_requests--;
	free(request);
}

/* False: readers overloaded. */
static bool begin_discovery(uint32_t host_pid, uint64_t start_time, enum binary_kind before,
			    bool any_library, size_t step)
{
	struct discovery_request *request = n_requests < MAX_REQUESTS ? calloc(1, sizeof(*request))
								      : NULL;

	if (!request)
		return false;
	request->discovery.before = before;
	request->discovery.any_library = any_library;
	request->discovery.done = on_discovered;
	request->host_pid = host_pid;
	request->start_time = start_time;
	request->step = step;
	request->begin_ns = clock_monotonic_ns();
	if (!discovery_begin(&request->discovery, host_pid)) {
		free(request);
		return false;
	}
	n_requests++;
	request->of_start = of_start;
	n_of_start += request->of_start;
	HASH_ADD(hh, requests, host_pid, sizeof(request->host_pid), request);
	return true;
}

void discover(uint32_t host_pid, bool exec)
{
	uint64_t start_time = proc_start_time(host_pid);
	struct discovery_request *before = find_request(host_pid);

	if (before && (exec || before->start_time != start_time))
		mark_outdated(before);
	else if (before)
		return;
	if (start_time && !begin_discovery(host_pid, start_time, BINARY_UNKNOWN, !exec, 0))
		schedule_recheck(host_pid, start_time, BINARY_UNKNOWN, 0);
}

/* True: no further recheck of this kind. */
static bool recheck(const struct recheck *p)
{
	size_t next = p->kind == BINARY_UNKNOWN ? 0 : p->retry.step + 1;
	const struct process *known = process_find(p->host_pid);

	if (proc_start_time(p->host_pid) != p->start_time || (known && !known->file.unanswered) ||
	    find_request(p->host_pid) ||
	    begin_discovery(p->host_pid, p->start_time, p->kind, true, next))
		return true;
	if (!known && readers_owner_is_full(p->host_pid))
		report_starved(p->host_pid, p->start_time);
	return false;
}

static void run_recheck(struct retry_item *item, uint64_t now_ns)
{
	const struct recheck *p = (const struct recheck *)item;
	struct retry_queue *queue = rechecks_of(p->kind);

	if (recheck(p) || !retry_item_wait(queue, item, item->step, now_ns))
		retry_item_free(queue, item);
}

void discover_without_room(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		uint32_t host_pid = p->host_pid;

		if (!p->file.no_room || !binaries_have_room())
			continue;
		process_end(p);
		discover(host_pid, false);
	}
}

static void report_stalled_requests(uint64_t now_ns)
{
	struct discovery_request *request, *next;

	HASH_ITER(hh, requests, request, next)
	{
		if (request->begin_ns + NSEC_PER_SEC > now_ns) /* later ones are younger */
			break;
		if (!request->reported && (discovery_stalled(&request->discovery) ||
					   now_ns > request->begin_ns + LONG_NS))
			report_stalled(request);
	}
}

bool discoveries_pending(uint32_t host_pid)
{
	return find_request(host_pid) != NULL;
}

void discoveries_outdate(uint32_t host_pid)
{
	struct discovery_request *request = find_request(host_pid);

	if (request)
		mark_outdated(request);
}

void discoveries_of_start(bool begin)
{
	of_start = begin;
}

bool discoveries_of_start_done(void)
{
	return !n_of_start;
}

bool discoveries_want_rescan(void)
{
	return rescan_wanted;
}

void discoveries_rescan_begins(void)
{
	rescan_wanted = false;
}

void discoveries_tick(uint64_t now_ns)
{
	retry_queue_tick(&first_rechecks, now_ns);
	retry_queue_tick(&linked_rechecks, now_ns);
	retry_queue_tick(&other_rechecks, now_ns);
	report_stalled_requests(now_ns);
}

uint64_t discoveries_due_in(uint64_t now_ns, uint64_t limit_ns)
{
	return retry_queue_due_in(&linked_rechecks, now_ns, limit_ns);
}

void discoveries_start(void)
{
	stopped = false;
}

void discoveries_stop(void)
{
	stopped = true;
	retry_queue_clear(&first_rechecks);
	retry_queue_clear(&linked_rechecks);
	retry_queue_clear(&other_rechecks);
}
