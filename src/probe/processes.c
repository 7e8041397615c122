// SPDX-License-Identifier: Apache-2.0
/* Which processes are Python, and following them. See processes.h. */
#include "probe/processes.h"

#include <bpf/bpf.h>
#include <string.h>

#include "delay_queue.h"
#include "log.h"
#include "probe/clock.h"
#include "probe/look.h"
#include "probe/proc.h"
#include "probe/process_table.h"
#include "probe/state_check.h"
#include "stop.h"

/*
 * When to look again at a process that has just been exec'ed: one first-in first-out queue a
 * delay. An executable that asks for libpython has it mapped within milliseconds; any other one
 * may still dlopen() it (uWSGI plugins, editors), which is worth two late looks and no more.
 */
struct pending {
	struct delayed delayed;
	uint32_t host_pid;
	uint64_t start_time;
	enum binary_kind kind;
};

static struct delay_queue linked_rechecks[] = { { 2 },	 { 5 },	  { 10 },   { 20 },   { 50 },
						{ 100 }, { 300 }, { 1000 }, { 3000 }, { 10000 } };
static struct delay_queue other_rechecks[] = { { 5000 }, { 60000 } };
/* Not looked at because the readers had too much to do, or the process itself held its own up. */
static struct delay_queue first_looks[] = { { 500 } };
enum { MAX_PENDING = 65536, MAX_INQUIRIES = 8192 };

/* A look that is under way. */
struct inquiry {
	struct look look;
	uint32_t host_pid;
	uint64_t start_time;
	size_t step; /* of its kind's rechecks, that comes after it */
	uint64_t begin_ns;
	bool of_start; /* its process was there before the agent */
	bool told;     /* that it is held up */
	bool outdated; /* the process has exec'ed since, and is looked at anew */
	UT_hash_handle hh;
};
/* For longer than this nobody waits without a word; readers' patience is shorter, see readers.h. */
static const uint64_t LONG_NS = 10 * NSEC_PER_SEC;
/* Children that a process has before it is known to be Python are not seen as they are forked. */
static const uint64_t SLOW_NS = 20 * NSEC_PER_MSEC, RESCAN_NS = 2 * NSEC_PER_SEC;

static struct inquiry *inquiries; /* by pid, in the order of their begin; not the outdated ones */
static size_t n_pending, n_inquiries, n_of_start;
static bool scanning_at_start, stopped, rescan_wanted;
static uint64_t rescan_next_ns;
static struct complaint too_many;
static int map_fd = -1;
static bool only_chosen;
static struct processes_hooks hooks;

static bool is_chosen(uint32_t host_pid)
{
	struct process_info info;

	return bpf_map_lookup_elem(map_fd, &host_pid, &info) == 0;
}

/* ---- those that are known ---- */

/* Tells the kernel's side whether it is Python or only looks so. `how`: BPF_ANY or BPF_EXIST. */
static int mark(uint32_t host_pid, uint32_t flags, uint64_t how)
{
	struct process_info info = { .flags = flags };

	if (only_chosen)
		info.flags |= PROCESS_CHOSEN | PROCESS_PYTHON;
	return bpf_map_update_elem(map_fd, &host_pid, &info, how);
}

/* Without a binary: what is to be known of it is why it is refused. */
static void track(uint32_t host_pid, const struct binary_file *file, const struct why *why,
		  uint64_t start_time)
{
	struct process *p;

	if (mark(host_pid, file->binary ? PROCESS_PYTHON : PROCESS_REFUSED, BPF_ANY)) {
		log_warn("process %u is not tracked: the map of processes is full", host_pid);
		return;
	}
	/* it may have died before it stood in the map: then nobody would ever take it out */
	if (proc_start_time(host_pid) != start_time) {
		bpf_map_delete_elem(map_fd, &host_pid);
		return;
	}
	p = process_add(host_pid, file, why);
	if (!p)
		return;
	if (hooks.appeared)
		hooks.appeared(p);
	if (file->binary)
		state_check_soon(p, start_time);
}

/* What did not answer turns out to be none of ours. */
static void untrack(uint32_t host_pid)
{
	process_forget(process_find(host_pid));
	if (!only_chosen)
		bpf_map_delete_elem(map_fd, &host_pid);
	if (hooks.gone)
		hooks.gone(host_pid);
}

/* Nothing that was read of it can be right: it is no Python of this build after all. */
static void refuse(struct process *p)
{
	uint32_t host_pid = p->host_pid;

	log_warn("process %u in %s: %s", host_pid, p->file.binary->path, p->unread.text);
	mark(host_pid, PROCESS_REFUSED, BPF_EXIST); /* it may be dead */
	if (hooks.gone)
		hooks.gone(host_pid);
	process_drop_binary(p);
	p->refused = p->unread;
	if (hooks.appeared)
		hooks.appeared(p);
}

/* ---- waiting for a look ---- */

static struct delay_queue *recheck_after(enum binary_kind kind, size_t step)
{
	if (kind == BINARY_UNKNOWN)
		return &first_looks[0];
	if (kind == BINARY_LINKS_LIBPYTHON)
		return step < ARRAY_SIZE(linked_rechecks) ? &linked_rechecks[step] : NULL;
	return step < ARRAY_SIZE(other_rechecks) ? &other_rechecks[step] : NULL;
}

/* `step`: of its kind's looks; after the last nothing more is to be done. */
static void wait_for_look(uint32_t host_pid, uint64_t start_time, enum binary_kind kind,
			  size_t step)
{
	struct delay_queue *queue = recheck_after(kind, step);
	struct pending *p;

	if (!queue)
		return;
	p = n_pending < MAX_PENDING ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		complain(&too_many, "too many processes wait to be looked at: all that there are "
				    "are looked at again, later");
		rescan_wanted = true;
		return;
	}
	n_pending++;
	p->host_pid = host_pid;
	p->start_time = start_time;
	p->kind = kind;
	delay_queue_push(queue, &p->delayed, clock_monotonic_ns());
}

/* ---- looking at a process ---- */

static void look_at(uint32_t host_pid, bool exec);

static struct inquiry *find_inquiry(uint32_t host_pid)
{
	struct inquiry *i;

	HASH_FIND(hh, inquiries, &host_pid, sizeof(host_pid), i);
	return i;
}

static void nobody_waits_for(struct inquiry *i)
{
	n_of_start -= i->of_start;
	i->of_start = false;
}

static void take_out(struct inquiry *i)
{
	nobody_waits_for(i);
	HASH_DEL(inquiries, i);
	i->outdated = true;
}

/* They were forked off something that did not answer, and may be what it is. */
static void look_at_unanswered(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		if (p->file.unanswered && !find_inquiry(p->host_pid))
			look_at(p->host_pid, false);
	}
}

/* What was found out becomes known. */
static void conclude(const struct inquiry *i)
{
	const struct look *look = &i->look;
	const struct process *before = process_find(i->host_pid);
	bool answers_now = before && before->file.unanswered;

	if (look->kind == BINARY_PYTHON)
		track(i->host_pid, &look->file, NULL, i->start_time);
	else if (look->kind == BINARY_REFUSED && look->why.text[0])
		track(i->host_pid, &look->file, &look->why, i->start_time);
	else if (answers_now && look->kind != BINARY_UNKNOWN)
		untrack(i->host_pid);
	if (look->kind != BINARY_PYTHON && look->kind != BINARY_REFUSED)
		wait_for_look(i->host_pid, i->start_time, look->kind, i->step);
	if (look->kind == BINARY_PYTHON && clock_monotonic_ns() > i->begin_ns + SLOW_NS)
		rescan_wanted = true;
	if (answers_now)
		look_at_unanswered();
}

static void looked(struct look *look)
{
	struct inquiry *i = (struct inquiry *)look;

	if (!i->outdated) {
		take_out(i);
		if (!stopped && proc_start_time(i->host_pid) == i->start_time)
			conclude(i);
	}
	n_inquiries--;
	free(i);
}

/* False: too much is to be read just now. */
static bool begin_look(uint32_t host_pid, uint64_t start_time, enum binary_kind before,
		       bool any_library, size_t step)
{
	struct inquiry *i = n_inquiries < MAX_INQUIRIES ? calloc(1, sizeof(*i)) : NULL;

	if (!i)
		return false;
	i->look.before = before;
	i->look.any_library = any_library;
	i->look.done = looked;
	i->host_pid = host_pid;
	i->start_time = start_time;
	i->step = step;
	i->begin_ns = clock_monotonic_ns();
	if (!look_begin(&i->look, host_pid)) {
		free(i);
		return false;
	}
	n_inquiries++;
	i->of_start = scanning_at_start;
	n_of_start += i->of_start;
	HASH_ADD(hh, inquiries, host_pid, sizeof(i->host_pid), i);
	return true;
}

/* For the first time. `exec`: it has only just begun, nothing can have loaded a library yet. */
static void look_at(uint32_t host_pid, bool exec)
{
	uint64_t start_time = proc_start_time(host_pid);
	struct inquiry *before = find_inquiry(host_pid);

	if (before && (exec || before->start_time != start_time))
		take_out(before);
	else if (before)
		return;
	if (start_time && !begin_look(host_pid, start_time, BINARY_UNKNOWN, !exec, 0))
		wait_for_look(host_pid, start_time, BINARY_UNKNOWN, 0);
}

static void look_once_more(const struct pending *p, size_t step)
{
	size_t next = p->kind == BINARY_UNKNOWN ? 0 : step + 1;

	if (proc_start_time(p->host_pid) == p->start_time && !process_find(p->host_pid) &&
	    !find_inquiry(p->host_pid) &&
	    !begin_look(p->host_pid, p->start_time, p->kind, true, next))
		wait_for_look(p->host_pid, p->start_time, p->kind, step);
}

static void look_again(struct delay_queue *queues, size_t n, uint64_t now_ns)
{
	for (size_t step = 0; step < n; step++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[step], now_ns))) {
			n_pending--;
			look_once_more(p, step);
			free(p);
		}
	}
}

/* There is room now for what was refused for lack of it. */
static void look_where_was_no_room(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		uint32_t host_pid = p->host_pid;

		if (!p->file.no_room || !binaries_have_room())
			continue;
		process_forget(p);
		look_at(host_pid, false);
	}
}

/* ---- what does not answer ---- */

/*
 * The process stands in the table as one that is refused, so that its children are seen, too, and
 * what is wrong with it. Should it answer one day, conclude() puts that right.
 */
static void tell_held_up(struct inquiry *i)
{
	const struct binary_file file = { .dev = i->look.question.identity.dev,
					  .ino = i->look.question.identity.ino,
					  .unanswered = true };
	struct why why;

	i->told = true;
	nobody_waits_for(i);
	if (process_find(i->host_pid) || proc_start_time(i->host_pid) != i->start_time)
		return;
	why_fail(&why, 0,
		 "nobody knows whether it is a Python: %s does not answer; it is watched as soon "
		 "as that does",
		 i->look.asking ? "the file that it runs" : "/proc/PID");
	log_warn("process %u: %s", i->host_pid, why.text);
	track(i->host_pid, &file, &why, i->start_time);
}

static void look_for_held_up(uint64_t now_ns)
{
	struct inquiry *i, *next;

	HASH_ITER(hh, inquiries, i, next)
	{
		if (i->begin_ns + NSEC_PER_SEC > now_ns) /* and those behind it */
			break;
		if (!i->told && (look_held_up(&i->look) || now_ns > i->begin_ns + LONG_NS))
			tell_held_up(i);
	}
}

bool processes_settled(void)
{
	return !n_of_start;
}

void processes_tick(uint64_t now_ns)
{
	if (processes_without_room() && binaries_have_room())
		look_where_was_no_room();
	state_checks_tick(now_ns);
	look_again(first_looks, ARRAY_SIZE(first_looks), now_ns);
	look_again(linked_rechecks, ARRAY_SIZE(linked_rechecks), now_ns);
	look_again(other_rechecks, ARRAY_SIZE(other_rechecks), now_ns);
	look_for_held_up(now_ns);
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

static void on_exec(uint32_t host_pid, struct process *p)
{
	if (p) {
		/* another program now; only a chosen one is still in the map */
		process_forget(p);
		if (hooks.gone)
			hooks.gone(host_pid);
	}
	if (!only_chosen || is_chosen(host_pid))
		look_at(host_pid, true);
}

static void on_fork(uint32_t host_pid, const struct process *parent)
{
	struct process *p = process_add(host_pid, &parent->file, &parent->refused);

	if (!p || !p->file.binary) /* refused as its parent is, of which there is a row */
		return;
	if (hooks.appeared)
		hooks.appeared(p);
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
		/* an exec'ed child may have been seen already: then that was the newer truth */
		if (parent && !p && !find_inquiry(event->host_pid))
			on_fork(event->host_pid, parent);
		break;
	case PROCESS_THREAD:
		if (p && hooks.thread_started)
			hooks.thread_started(event);
		break;
	case PROCESS_EXIT:
		if (p)
			process_forget(p);
		if (hooks.gone)
			hooks.gone(event->host_pid);
		break;
	}
}

static void scan_one(uint32_t pid, void *context)
{
	(void)context;
	if (!stop_requested() && !process_find(pid) && (!only_chosen || is_chosen(pid)))
		look_at(pid, false);
}

void processes_rescan(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		uint32_t host_pid = p->host_pid;

		if (proc_start_time(host_pid))
			continue;
		process_forget(p);
		if (hooks.gone)
			hooks.gone(host_pid);
	}
	proc_for_each(scan_one, NULL);
}

int processes_start(int tracked_map_fd, const struct pid_list *chosen,
		    const struct processes_hooks *with, struct why *why)
{
	struct process_info info = { .flags = PROCESS_CHOSEN | PROCESS_PYTHON };

	map_fd = tracked_map_fd;
	only_chosen = chosen->n > 0;
	stopped = false;
	hooks = *with;
	state_checks_init(&(struct state_check_hooks){ with->checked, refuse });
	for (size_t i = 0; i < chosen->n; i++) {
		if (bpf_map_update_elem(map_fd, &chosen->items[i], &info, BPF_ANY))
			return why_fail(why, errno, "--pid: cannot track process %u: %s",
					chosen->items[i], strerror(errno));
		if (!proc_start_time(chosen->items[i]))
			return why_fail(why, ESRCH, "--pid: there is no process %u on this host",
					chosen->items[i]);
	}
	scanning_at_start = true;
	proc_for_each(scan_one, NULL);
	scanning_at_start = false;
	return 0;
}

static void drop_pending(struct delay_queue *queues, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[i], UINT64_MAX))) {
			n_pending--;
			free(p);
		}
	}
}

void processes_stop(void)
{
	struct process *p, *next;

	stopped = true;
	HASH_ITER(hh, process_table(), p, next)
	process_forget(p);
	drop_pending(first_looks, ARRAY_SIZE(first_looks));
	drop_pending(linked_rechecks, ARRAY_SIZE(linked_rechecks));
	drop_pending(other_rechecks, ARRAY_SIZE(other_rechecks));
	state_checks_stop();
}
