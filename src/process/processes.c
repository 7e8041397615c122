// SPDX-License-Identifier: Apache-2.0
/* Discovery: which processes are Python, and their life cycle. See processes.h. */
#include "process/processes.h"

#include <string.h>
#include <unistd.h>

#include "base/delay_queue.h"
#include "base/log.h"
#include "base/clock.h"
#include "process/discovery.h"
#include "host/proc.h"
#include "process/process_table.h"
#include "process/grace_period.h"
#include "process/state_check.h"
#include "process/tracked_map.h"
#include "process/young.h"
#include "workers/readers.h"
#include "base/stop.h"

/*
 * Rechecks of a process after exec(), in a FIFO queue per delay. An executable linked to libpython
 * maps the library within milliseconds; another may dlopen() libpython later (uWSGI plugins,
 * editors): two late checks.
 */
struct recheck {
	struct delayed delayed;
	uint32_t host_pid;
	uint64_t start_time;
	enum binary_kind kind;
};

static struct delay_queue linked_rechecks[] = { { 2 },	 { 5 },	  { 10 },   { 20 },   { 50 },
						{ 100 }, { 300 }, { 1000 }, { 3000 }, { 10000 } };
static struct delay_queue other_rechecks[] = { { 5000 }, { 60000 } };
/* First discoveries deferred since readers were overloaded or stalled by the process. */
static struct delay_queue first_rechecks[] = { { 500 } };
enum { MAX_RECHECKS = 65536, MAX_REQUESTS = 8192 };

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
static const uint64_t SLOW_NS = 20 * NSEC_PER_MSEC, RESCAN_NS = 2 * NSEC_PER_SEC;

static struct discovery_request *requests; /* by pid, in order of start, without outdated ones */
static size_t n_rechecks, n_requests, n_of_start;
static bool scanning_at_start, stopped, rescan_wanted;
static uint64_t rescan_next_ns;
static struct log_limit too_many;
static bool only_chosen;
static struct processes_hooks hooks;

static bool is_chosen(uint32_t host_pid)
{
	struct process_info info;

	return tracked_map_find(host_pid, &info) && info.flags & PROCESS_CHOSEN;
}

/* ---- known processes ---- */

/* Publishes the process's flags to BPF, by tracked_map_put() or tracked_map_change(). */
static int publish_flags(uint32_t host_pid, uint32_t flags,
			 int (*publish)(uint32_t host_pid, const struct process_info *info))
{
	struct process_info info = { .flags = flags };

	if (only_chosen)
		info.flags |= PROCESS_CHOSEN | PROCESS_PYTHON;
	return publish(host_pid, &info);
}

static void announce_process(struct process *p, uint64_t start_time)
{
	if (hooks.appeared)
		hooks.appeared(p);
	grace_period_begin(p, start_time);
}

/* A refused Python is tracked in BPF without reading its memory. */
static uint32_t flags_of(const struct binary_file *file)
{
	if (file->unanswered)
		return PROCESS_REFUSED;
	return file->binary ? PROCESS_PYTHON : PROCESS_PYTHON | PROCESS_REFUSED;
}

/* Without binary: `why` is the reason of the refusal. */
static void track_process(uint32_t host_pid, const struct binary_file *file, const struct why *why,
			  uint64_t start_time)
{
	struct process *p;

	if (publish_flags(host_pid, flags_of(file), tracked_map_put)) {
		log_warn("process %u is not tracked: the map of processes is full", host_pid);
		return;
	}
	/* if the process ended before the insertion, no exit event will remove the entry */
	if (proc_start_time(host_pid) != start_time) {
		tracked_map_delete(host_pid);
		return;
	}
	p = process_add(host_pid, file, why);
	if (!p)
		return;
	announce_process(p, start_time);
	if (file->binary)
		state_check_soon(p, start_time);
}

/* The process ended, called exec(), or is no Python: the one place where its state is dropped. */
static void process_gone(uint32_t host_pid)
{
	struct process *p = process_find(host_pid);

	if (hooks.gone)
		hooks.gone(host_pid);
	if (p)
		process_end(p);
}

/* A stalled process turned out not to be a Python. */
static void untrack_process(uint32_t host_pid)
{
	if (!only_chosen)
		tracked_map_delete(host_pid);
	process_gone(host_pid);
}

/* The state check failed: refuses the process. */
static void refuse_process(struct process *p)
{
	uint32_t host_pid = p->host_pid;

	log_warn("process %u in %s: %s", host_pid, p->file.binary->path, p->unread.text);
	publish_flags(host_pid, PROCESS_PYTHON | PROCESS_REFUSED,
		      tracked_map_change); /* the process may have ended */
	if (hooks.gone)
		hooks.gone(host_pid); /* the process stays in the table, as refused */
	process_drop_binary(p);
	p->refused = p->unread;
	announce_process(p, 0);
}

/* ---- deferred discoveries ---- */

static struct delay_queue *recheck_after(enum binary_kind kind, size_t step)
{
	if (kind == BINARY_UNKNOWN)
		return &first_rechecks[0];
	if (kind == BINARY_LINKS_LIBPYTHON)
		return step < ARRAY_SIZE(linked_rechecks) ? &linked_rechecks[step] : NULL;
	return step < ARRAY_SIZE(other_rechecks) ? &other_rechecks[step] : NULL;
}

/* `step`: index of the recheck; none after the last. */
static void schedule_recheck(uint32_t host_pid, uint64_t start_time, enum binary_kind kind,
			     size_t step)
{
	struct delay_queue *queue = recheck_after(kind, step);
	struct recheck *p;

	if (!queue)
		return;
	p = n_rechecks < MAX_RECHECKS ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		log_ratelimited(
			&too_many,
			"too many processes wait for a check: all processes are checked again "
			"later");
		rescan_wanted = true;
		return;
	}
	n_rechecks++;
	p->host_pid = host_pid;
	p->start_time = start_time;
	p->kind = kind;
	delay_queue_push(queue, &p->delayed, clock_monotonic_ns());
}

/* ---- discoveries ---- */

static void discover(uint32_t host_pid, bool exec);

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
	track_process(host_pid, &file, why, start_time);
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
		track_process(request->host_pid, &discovery->file, NULL, request->start_time);
	else if (discovery->kind == BINARY_REFUSED && discovery->why.text[0])
		track_process(request->host_pid, &discovery->file, &discovery->why,
			      request->start_time);
	else if (answers_now && discovery->kind != BINARY_UNKNOWN)
		untrack_process(request->host_pid);
	if (discovery->kind != BINARY_PYTHON && discovery->kind != BINARY_REFUSED)
		schedule_recheck(request->host_pid, request->start_time, discovery->kind,
				 request->step);
	if (discovery->kind == BINARY_PYTHON && clock_monotonic_ns() > request->begin_ns + SLOW_NS)
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
	request->of_start = scanning_at_start;
	n_of_start += request->of_start;
	HASH_ADD(hh, requests, host_pid, sizeof(request->host_pid), request);
	return true;
}

/* First discovery. `exec`: just started, no library can be loaded so far. */
static void discover(uint32_t host_pid, bool exec)
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

static void run_recheck(const struct recheck *p, size_t step)
{
	size_t next = p->kind == BINARY_UNKNOWN ? 0 : step + 1;
	const struct process *known = process_find(p->host_pid);

	if (proc_start_time(p->host_pid) != p->start_time || (known && !known->file.unanswered) ||
	    find_request(p->host_pid) ||
	    begin_discovery(p->host_pid, p->start_time, p->kind, true, next))
		return;
	if (!known && readers_owner_is_full(p->host_pid))
		report_starved(p->host_pid, p->start_time);
	schedule_recheck(p->host_pid, p->start_time, p->kind, step);
}

static void run_rechecks(struct delay_queue *queues, size_t n, uint64_t now_ns)
{
	for (size_t step = 0; step < n; step++) {
		struct recheck *p;

		while ((p = (struct recheck *)delay_queue_pop(&queues[step], now_ns))) {
			n_rechecks--;
			run_recheck(p, step);
			free(p);
		}
	}
}

/* Discovers processes again that were refused for lack of room. */
static void discover_without_room(void)
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

/* An exec() without event: a running discovery may have found the previous program. */
static void on_survived_exec(uint32_t host_pid)
{
	struct process *p = process_find(host_pid);
	struct discovery_request *before = find_request(host_pid);

	if (p && !p->file.unanswered)
		process_gone(host_pid);
	if (before)
		mark_outdated(before);
	discover(host_pid, false);
}

bool processes_scanned(void)
{
	return !n_of_start;
}

void processes_tick(uint64_t now_ns)
{
	if (processes_without_room() && binaries_have_room())
		discover_without_room();
	state_checks_tick(now_ns);
	grace_period_tick(now_ns);
	young_tick(now_ns, on_survived_exec);
	run_rechecks(first_rechecks, ARRAY_SIZE(first_rechecks), now_ns);
	run_rechecks(linked_rechecks, ARRAY_SIZE(linked_rechecks), now_ns);
	run_rechecks(other_rechecks, ARRAY_SIZE(other_rechecks), now_ns);
	report_stalled_requests(now_ns);
	if (rescan_wanted && now_ns >= rescan_next_ns) {
		rescan_wanted = false;
		rescan_next_ns = now_ns + RESCAN_NS;
		processes_rescan();
	}
}

uint64_t processes_due_in(uint64_t now_ns, uint64_t limit_ns)
{
	return delay_queues_due_in(linked_rechecks, ARRAY_SIZE(linked_rechecks), now_ns, limit_ns);
}

/* ---- events ---- */

static void on_exec(uint32_t host_pid, const struct process *p)
{
	if (p) /* another program; only chosen processes stay in the map */
		process_gone(host_pid);
	if (!only_chosen || is_chosen(host_pid))
		discover(host_pid, true);
}

static void on_fork(uint32_t host_pid, const struct process *parent)
{
	struct process *p = process_add(host_pid, &parent->file, &parent->refused);

	if (!p)
		return;
	announce_process(p, 0);
	if (p->file.binary)
		state_check_soon(p, 0);
}

void processes_handle(const struct process_event *event)
{
	struct process *p = process_find(event->host_pid), *parent;

	switch (event->kind) {
	case PROCESS_EXEC:
		on_exec(event->host_pid, p);
		break;
	case PROCESS_FORK:
		parent = process_find(event->parent_host_pid);
		/* an exec() of the child may already be handled, which is newer */
		if (parent && !p && !find_request(event->host_pid))
			on_fork(event->host_pid, parent);
		break;
	case PROCESS_THREAD:
		if (p && hooks.thread_started)
			hooks.thread_started(event);
		break;
	case PROCESS_EXIT:
		process_gone(event->host_pid);
		break;
	}
}

static void scan_one(uint32_t pid, void *context)
{
	(void)context;
	if (!stop_requested() && !process_find(pid) && (!only_chosen || is_chosen(pid)))
		discover(pid, false);
}

void processes_rescan(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		if (!proc_start_time(p->host_pid))
			process_gone(p->host_pid);
	}
	proc_for_each(scan_one, NULL);
}

/* ---- chosen processes (--pid) ---- */

static const struct process_info chosen_info = { .flags = PROCESS_CHOSEN | PROCESS_PYTHON };
static bool more_inherit;

static void track_child(uint32_t pid, void *context)
{
	uint32_t parent = proc_parent(pid);
	struct process_info info;
	int err;

	(void)context;
	if (!parent || !tracked_map_find(parent, &info))
		return;
	err = tracked_map_add(pid, &info);
	if (!err)
		more_inherit = true;
	else if (err != -EEXIST)
		log_warn("process %u is not tracked: the map of processes is full", pid);
}

/* BPF adds children of processes in the map from now on: the loop terminates. */
static void add_descendants(void)
{
	do {
		more_inherit = false;
		proc_for_each(track_child, NULL);
	} while (more_inherit && !stop_requested());
}

static int track_chosen(const struct pid_list *chosen, struct why *why)
{
	static const struct process_info own_info = { .flags = PROCESS_OWN };
	uint32_t own = (uint32_t)getpid();
	int err = tracked_map_put(own, &own_info);

	only_chosen = chosen->n > 0;
	if (err)
		return why_fail(why, -err, "cannot leave the agent out: %s", strerror(-err));
	for (size_t i = 0; i < chosen->n; i++) {
		err = tracked_map_put(chosen->items[i], &chosen_info);
		if (err)
			return why_fail(why, -err, "--pid: cannot track process %u: %s",
					chosen->items[i], strerror(-err));
		if (!proc_start_time(chosen->items[i]))
			return why_fail(why, ESRCH, "--pid: there is no process %u on this host",
					chosen->items[i]);
	}
	add_descendants();
	return 0;
}

int processes_start(const struct pid_list *chosen, const struct processes_hooks *with,
		    struct why *why)
{
	int err;

	stopped = false;
	hooks = *with;
	grace_period_init(&(struct grace_period_hooks){ with->reportable, with->checked });
	state_checks_init(&(struct state_check_hooks){ grace_period_checked, refuse_process });
	err = track_chosen(chosen, why);
	if (err)
		return err;
	scanning_at_start = true;
	proc_for_each(scan_one, NULL);
	scanning_at_start = false;
	return 0;
}

static void drop_rechecks(struct delay_queue *queues, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct recheck *p;

		while ((p = (struct recheck *)delay_queue_pop(&queues[i], UINT64_MAX))) {
			n_rechecks--;
			free(p);
		}
	}
}

void processes_end(void)
{
	grace_period_end_all();
}

void processes_stop(void)
{
	struct process *p, *next;

	stopped = true;
	HASH_ITER(hh, process_table(), p, next)
	process_end(p);
	drop_rechecks(first_rechecks, ARRAY_SIZE(first_rechecks));
	drop_rechecks(linked_rechecks, ARRAY_SIZE(linked_rechecks));
	drop_rechecks(other_rechecks, ARRAY_SIZE(other_rechecks));
	state_checks_stop();
	grace_period_stop();
}
