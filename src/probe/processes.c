// SPDX-License-Identifier: Apache-2.0
/* Which processes are Python, and following them. See processes.h. */
#include "probe/processes.h"

#include <bpf/bpf.h>
#include <signal.h>
#include <string.h>

#include "log.h"
#include "delay_queue.h"
#include "probe/clock.h"
#include "probe/proc.h"
#include "stop.h"

/*
 * When to look again at a process that has just been exec'ed: one first-in first-out queue a
 * delay. An executable that asks for libpython has it mapped within milliseconds; any other one
 * may still dlopen() it (uWSGI plugins, editors), which is worth two late looks and no more.
 */
struct pending {
	struct delayed delayed;
	uint32_t host_pid;
	uint64_t start_time; /* 0: a forked child, which is whatever the table has by this pid */
	enum binary_kind kind;
};

static struct delay_queue linked_rechecks[] = { { 2 },	 { 5 },	  { 10 },   { 20 },   { 50 },
						{ 100 }, { 300 }, { 1000 }, { 3000 }, { 10000 } };
static struct delay_queue other_rechecks[] = { { 5000 }, { 60000 } };
/* An interpreter that has started: is its state where its build should have it? */
static struct delay_queue state_checks[] = { { 100 }, { 200 }, { 500 }, { 2000 }, { 20000 } };
enum { UNSOUND_LOOKS = 3 }; /* what is read while it changes may look wrong once */
enum { MAX_PENDING = 65536 };

static struct process *processes;
static size_t n_pending, n_without_room;
static uint64_t unlooked;
static int map_fd = -1;
static bool only_chosen;
static struct processes_hooks hooks;

/* ---- the table ---- */

static struct process *find(uint32_t host_pid)
{
	struct process *p;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), p);
	return p;
}

static void forget(struct process *p)
{
	n_without_room -= p->file.no_room;
	if (p->file.binary)
		binary_release(p->file.binary);
	HASH_DEL(processes, p);
	free(p);
}

static struct process *add(uint32_t host_pid, const struct binary_file *file, const struct why *why)
{
	struct process *p = find(host_pid);

	if (p)
		forget(p); /* exec'ed into another one, or the exit got lost */
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->host_pid = host_pid;
	p->file = *file;
	n_without_room += p->file.no_room;
	if (why)
		p->refused = *why;
	if (file->binary)
		binary_hold(file->binary);
	HASH_ADD(hh, processes, host_pid, sizeof(p->host_pid), p);
	return p;
}

static bool is_chosen(uint32_t host_pid)
{
	struct process_info info;

	return bpf_map_lookup_elem(map_fd, &host_pid, &info) == 0;
}

static void check_soon(uint32_t host_pid, uint64_t start_time);

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
	if (mark(host_pid, file->binary ? PROCESS_PYTHON : PROCESS_REFUSED, BPF_ANY)) {
		log_warn("process %u is not tracked: the map of processes is full", host_pid);
		return;
	}
	/* it may have died before it stood in the map: then nobody would ever take it out */
	if (proc_start_time(host_pid) != start_time) {
		bpf_map_delete_elem(map_fd, &host_pid);
		return;
	}
	if (!add(host_pid, file, why))
		return;
	if (hooks.appeared)
		hooks.appeared(find(host_pid));
	if (file->binary)
		check_soon(host_pid, start_time);
}

/* ---- looking at a process ---- */

static enum binary_kind look_at_libpython(uint32_t host_pid, struct binary_file *ret,
					  struct why *why)
{
	AUTO_CLOSE int fd = -1;
	char path[4096];

	fd = proc_open_libpython(host_pid, path, sizeof(path));
	return fd < 0 ? BINARY_OTHER : binaries_identify(fd, path, host_pid, ret, why);
}

/* `kind`: what an earlier look said; BINARY_PYTHON for the first look. Returns what it is. */
static enum binary_kind look(uint32_t host_pid, uint64_t start_time, enum binary_kind kind)
{
	struct binary_file file = { 0 };
	struct why why = { { 0 } };
	enum binary_kind found;

	if (kind == BINARY_PYTHON) {
		AUTO_CLOSE int fd = -1;
		char path[4096];

		fd = proc_open_exe(host_pid, path, sizeof(path));
		if (fd < 0) /* a kernel thread, gone, or not ours to read */
			return BINARY_REFUSED;
		kind = binaries_identify(fd, path, host_pid, &file, &why);
	}
	found = kind;
	if (kind == BINARY_LINKS_LIBPYTHON || kind == BINARY_OTHER)
		found = look_at_libpython(host_pid, &file, &why);
	if (found == BINARY_PYTHON)
		track(host_pid, &file, NULL, start_time);
	else if (found == BINARY_REFUSED && why.text[0])
		track(host_pid, &file, &why, start_time);
	if (found == BINARY_PYTHON || found == BINARY_REFUSED)
		return found;
	return kind;
}

static struct delay_queue *recheck_after(enum binary_kind kind, size_t step)
{
	if (kind == BINARY_PYTHON)
		return step < ARRAY_SIZE(state_checks) ? &state_checks[step] : NULL;
	if (kind == BINARY_LINKS_LIBPYTHON)
		return step < ARRAY_SIZE(linked_rechecks) ? &linked_rechecks[step] : NULL;
	return step < ARRAY_SIZE(other_rechecks) ? &other_rechecks[step] : NULL;
}

static void give_up(struct pending *p)
{
	n_pending--;
	free(p);
}

/* Takes `p` over: it waits for its next look, or, after the last, is given up. */
static void schedule(struct pending *p, size_t step, uint64_t now_ns)
{
	struct delay_queue *queue = recheck_after(p->kind, step);

	if (queue)
		delay_queue_push(queue, &p->delayed, now_ns);
	else
		give_up(p);
}

/* Takes the process's start from it, and waits for `step` of its kind's looks. */
static void wait_for_look(uint32_t host_pid, uint64_t start_time, enum binary_kind kind)
{
	struct pending *p = n_pending < MAX_PENDING ? calloc(1, sizeof(*p)) : NULL;

	if (!p) {
		unlooked++;
		return;
	}
	n_pending++;
	p->host_pid = host_pid;
	p->start_time = start_time;
	p->kind = kind;
	schedule(p, 0, clock_monotonic_ns());
}

static void check_soon(uint32_t host_pid, uint64_t start_time)
{
	wait_for_look(host_pid, start_time, BINARY_PYTHON);
}

static void first_look(uint32_t host_pid)
{
	uint64_t start_time = proc_start_time(host_pid);
	enum binary_kind kind;

	if (!start_time)
		return;
	kind = look(host_pid, start_time, BINARY_PYTHON);
	if (kind == BINARY_PYTHON || kind == BINARY_REFUSED)
		return;
	wait_for_look(host_pid, start_time, kind);
}

static void look_again(struct delay_queue *queues, size_t n, uint64_t now_ns)
{
	for (size_t step = 0; step < n; step++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[step], now_ns))) {
			enum binary_kind kind = BINARY_REFUSED;

			if (proc_start_time(p->host_pid) == p->start_time && !find(p->host_pid))
				kind = look(p->host_pid, p->start_time, p->kind);
			if (kind != BINARY_PYTHON && kind != BINARY_REFUSED)
				schedule(p, step + 1, now_ns);
			else
				give_up(p);
		}
	}
}

/* Nothing that was read of it can be right: it is no Python of this build after all. */
static void refuse(struct process *p)
{
	uint32_t host_pid = p->host_pid;

	log_warn("process %u in %s: %s", host_pid, p->file.binary->path, p->unread.text);
	mark(host_pid, PROCESS_REFUSED, BPF_EXIST); /* it may be dead */
	if (hooks.gone)
		hooks.gone(host_pid);
	binary_release(p->file.binary);
	p->file.binary = NULL;
	p->refused = p->unread;
	if (hooks.appeared)
		hooks.appeared(p);
}

/* True when there is no more to be learned of it. */
static bool check_state(struct process *p, bool last)
{
	int err = python_live_check(p->host_pid, &p->file, &p->live, &p->unread);
	bool unsound, later;

	if (!err)
		p->unread.text[0] = '\0';
	p->unsound_looks += err == -EBADMSG;
	unsound = err == -EBADMSG && p->unsound_looks >= UNSOUND_LOOKS;
	if (err && !last && !unsound)
		return false;
	/* a program may have the interpreter in it for long before it starts it */
	later = !unsound && (err == -EAGAIN || err == -EBADMSG);
	if (hooks.checked && !(later && p->told_unread))
		hooks.checked(p);
	p->told_unread = later;
	if (unsound)
		refuse(p);
	return !later;
}

static void check_states(uint64_t now_ns)
{
	for (size_t step = 0; step < ARRAY_SIZE(state_checks); step++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&state_checks[step], now_ns))) {
			struct process *process = find(p->host_pid);
			bool last = step + 1 == ARRAY_SIZE(state_checks);

			if (process && process->file.binary &&
			    (!p->start_time || proc_start_time(p->host_pid) == p->start_time) &&
			    !check_state(process, last))
				schedule(p, last ? step : step + 1, now_ns);
			else
				give_up(p);
		}
	}
}

/* There is room now for what was refused for lack of it. */
static void look_where_was_no_room(void)
{
	struct process *p, *next;

	HASH_ITER(hh, processes, p, next)
	{
		uint32_t host_pid = p->host_pid;

		if (!p->file.no_room || !binaries_have_room())
			continue;
		forget(p);
		first_look(host_pid);
	}
}

void processes_tick(uint64_t now_ns)
{
	if (n_without_room && binaries_have_room())
		look_where_was_no_room();
	check_states(now_ns);
	look_again(linked_rechecks, ARRAY_SIZE(linked_rechecks), now_ns);
	look_again(other_rechecks, ARRAY_SIZE(other_rechecks), now_ns);
}

uint64_t processes_due_in(uint64_t now_ns, uint64_t limit_ns)
{
	return delay_queues_due_in(linked_rechecks, ARRAY_SIZE(linked_rechecks), now_ns, limit_ns);
}

/* ---- events ---- */

void processes_handle(const struct process_event *event)
{
	struct process *p = find(event->host_pid), *parent;

	switch (event->kind) {
	case PROCESS_EXEC:
		if (p) {
			/* another program now; only a chosen one is still in the map */
			forget(p);
			if (hooks.gone)
				hooks.gone(event->host_pid);
		}
		if (!only_chosen || is_chosen(event->host_pid))
			first_look(event->host_pid);
		break;
	case PROCESS_FORK:
		parent = find(event->parent_host_pid);
		/* an exec'ed child may have been seen already: then that was the newer truth */
		if (!parent || p || !add(event->host_pid, &parent->file, &parent->refused))
			break;
		if (!parent->file.binary) /* refused as its parent is, of which there is a row */
			break;
		if (hooks.appeared)
			hooks.appeared(find(event->host_pid));
		check_soon(event->host_pid, 0);
		break;
	case PROCESS_THREAD:
		if (p && hooks.thread_started)
			hooks.thread_started(event);
		break;
	case PROCESS_EXIT:
		if (p)
			forget(p);
		if (hooks.gone)
			hooks.gone(event->host_pid);
		break;
	}
}

static void scan_one(uint32_t pid, void *context)
{
	(void)context;
	if ((!only_chosen || is_chosen(pid)) && !stop_requested())
		first_look(pid);
}

static void scan_unknown(uint32_t pid, void *context)
{
	if (!find(pid))
		scan_one(pid, context);
}

void processes_rescan(void)
{
	struct process *p, *next;

	HASH_ITER(hh, processes, p, next)
	{
		uint32_t host_pid = p->host_pid;

		if (proc_start_time(host_pid))
			continue;
		forget(p);
		if (hooks.gone)
			hooks.gone(host_pid);
	}
	proc_for_each(scan_unknown, NULL);
}

int processes_start(int tracked_map_fd, const struct pid_list *chosen,
		    const struct processes_hooks *with, struct why *why)
{
	struct process_info info = { .flags = PROCESS_CHOSEN | PROCESS_PYTHON };

	map_fd = tracked_map_fd;
	only_chosen = chosen->n > 0;
	hooks = *with;
	for (size_t i = 0; i < chosen->n; i++) {
		if (bpf_map_update_elem(map_fd, &chosen->items[i], &info, BPF_ANY))
			return why_fail(why, errno, "--pid: cannot track process %u: %s",
					chosen->items[i], strerror(errno));
		if (!proc_start_time(chosen->items[i]))
			return why_fail(why, ESRCH, "--pid: there is no process %u on this host",
					chosen->items[i]);
	}
	proc_for_each(scan_one, NULL);
	return 0;
}

static void drop_pending(struct delay_queue *queues, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pending *p;

		while ((p = (struct pending *)delay_queue_pop(&queues[i], UINT64_MAX)))
			give_up(p);
	}
}

void processes_stop(void)
{
	struct process *p, *next;

	HASH_ITER(hh, processes, p, next)
	forget(p);
	drop_pending(linked_rechecks, ARRAY_SIZE(linked_rechecks));
	drop_pending(other_rechecks, ARRAY_SIZE(other_rechecks));
	drop_pending(state_checks, ARRAY_SIZE(state_checks));
}

const struct process *processes_find(uint32_t host_pid)
{
	return find(host_pid);
}

size_t processes_count(void)
{
	return HASH_COUNT(processes);
}

uint64_t processes_unlooked(void)
{
	return unlooked;
}
