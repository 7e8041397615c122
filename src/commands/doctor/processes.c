// SPDX-License-Identifier: Apache-2.0
/* The part of `underspan doctor` about single processes. See processes.h. */
#include "commands/doctor/processes.h"

#include <elf.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "commands/doctor/report.h"
#include "host/cgroup.h"
#include "host/proc.h"
#include "process/binaries.h"
#include "process/discovery.h"
#include "process/runtime_addresses.h"
#include "workers/reader_process.h"
#include "workers/readers.h"

/* Static: may outlive the waiting function. */
static struct discovery look;
static bool is_discovered;

/* The processes that the user named. */
static const struct pid_list *named;

static void on_discovered(struct discovery *at)
{
	(void)at;
	is_discovered = true;
}

/* Same discovery as the agent's, but synchronous. */
static enum binary_kind identify(uint32_t pid, struct binary_file *ret, struct why *why)
{
	uint64_t until_ns = clock_monotonic_ns() + DOCTOR_PATIENCE_NS;

	is_discovered = false;
	look = (struct discovery){ .before = BINARY_UNKNOWN,
				   .any_library = true,
				   .done = on_discovered };
	if (!discovery_begin(&look, pid)) {
		why_fail(why, 0, "the process cannot be examined");
		return BINARY_REFUSED;
	}
	while (!is_discovered && clock_monotonic_ns() < until_ns) {
		struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

		poll(&fd, 1, 100);
		readers_complete(NULL, NULL);
	}
	if (!is_discovered) {
		why_fail(
			why, 0,
			"cannot tell whether the process is a Python: the process or the program file "
			"does not answer");
		return BINARY_UNKNOWN;
	}
	*ret = look.file;
	*why = look.why;
	if (look.kind != BINARY_REFUSED || why->text[0])
		return look.kind;
	why_fail(why, 0, "the program file cannot be read: %s",
		 strerror(look.err ? -look.err : EACCES));
	return BINARY_UNKNOWN;
}

static void describe_container(uint32_t pid)
{
	struct cgroup_identity identity;
	char text[16384], line[160];

	if (proc_read(pid, "cgroup", text, sizeof(text)) < 0)
		return;
	cgroup_identity(text, &identity);
	if (!identity.container_id[0] && !identity.pod_uid[0])
		return;
	snprintf(line, sizeof(line), "%s%s%s", identity.container_id,
		 identity.pod_uid[0] ? " pod " : "", identity.pod_uid);
	doctor_say(true, "container", line);
}

static void describe_build(const struct python_binary *binary)
{
	const struct python_image *image = &binary->image;
	char line[512], id[2 * PYTHON_BUILD_ID_MAX + 1] = "none";

	for (size_t i = 0; i < image->build_id_len; i++)
		snprintf(id + 2 * i, sizeof(id) - 2 * i, "%02x", image->build_id[i]);
	if (image->micro == PYTHON_MICRO_UNKNOWN)
		snprintf(line, sizeof(line), "%u.%u in %s", image->major, image->minor,
			 binary->path);
	else
		snprintf(line, sizeof(line), "%u.%u.%u in %s", image->major, image->minor,
			 image->micro, binary->path);
	doctor_say(true, "Python", line);
	snprintf(line, sizeof(line), "%s, build id %s",
		 image->machine == EM_AARCH64 ? "arm64" : "x86-64", id);
	doctor_say(true, "build", line);
}

/* Source of a collection's bounds; other methods have no details. */
static const char *symbols_of(const struct tracker *tracker, const struct python_binary *binary)
{
	return !strcmp(tracker->name, "gc_pause") && binary->image.gc_method == GC_METHOD_SYMBOL
		       ? binary->image.gc_symbols
		       : NULL;
}

/* `walkable`: Python stacks can be read. */
static bool describe_tracker(const struct tracker *tracker, const struct python_binary *binary,
			     size_t i, bool walkable)
{
	const char *symbols = symbols_of(tracker, binary);
	char line[512];

	if (!tracker_attaches(tracker) && !tracker_walks_threads(tracker))
		return doctor_say(true, tracker->name, "needs no probe in the process");
	if (!walkable && tracker_needs_interpreter(tracker) && !tracker_attaches(tracker))
		return doctor_say(false, tracker->name, "needs the interpreter's Python stacks");
	if (!tracker_attaches(tracker))
		return doctor_say(
			true, tracker->name,
			walkable ? "needs no probe in the process; rows have Python stacks"
				 : "needs no probe in the process; rows have no Python stacks");
	if (!binary->probes[i].live)
		return doctor_say(false, tracker->name, binary->probes[i].refused.text);
	snprintf(line, sizeof(line), "%zu probe%s, found by %s%s%s", binary->probes[i].links.n,
		 plural(binary->probes[i].links.n), tracker->python->method(binary),
		 symbols ? ": " : "", symbols ? symbols : "");
	return doctor_say(true, tracker->name, line);
}

/* Checks the interpreter state: source of thread names, Python stacks and GIL waits. */
static bool describe_state(uint32_t pid, const struct binary_file *file)
{
	const struct python_binary *binary = file->binary;
	const struct python_live_location location = binary_live_location(file);
	struct python_live live;
	struct why why = { { 0 } };
	char line[256];

	if (python_live_check(pid, &location, &live, &why))
		return doctor_say(false, "state", why.text);
	snprintf(line, sizeof(line),
		 "offsets by %s; %u interpreter%s, %u thread%s (%u compared with the kernel's), "
		 "%u module%s",
		 binary->image.minor >= 13 ? "its own description" : "a table of versions",
		 live.interpreters, plural(live.interpreters), live.threads, plural(live.threads),
		 live.known_threads, live.modules, plural(live.modules));
	return doctor_say(true, "state", line);
}

static bool describe_python(const struct tracker_set *set, uint32_t pid,
			    const struct binary_file *file)
{
	bool walkable, ok;

	describe_build(file->binary);
	ok = describe_state(pid, file);
	walkable = ok && runtime_addresses_walkable(file->binary);
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			ok &= describe_tracker(set->items[i].tracker, file->binary, i, walkable);
	}
	return ok;
}

/* Trackers independent of the interpreter work for refused Pythons, too. */
static bool describe_refused(const struct tracker_set *set, const struct why *why)
{
	doctor_say(false, "Python", why->text);
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;

		if (!set->items[i].dead)
			doctor_say(!tracker_needs_interpreter(tracker), tracker->name,
				   tracker_needs_interpreter(tracker)
					   ? "needs the interpreter"
					   : "needs no probe in the process; rows have no "
					     "Python stacks");
	}
	return false;
}

/* ---- descendants of a process ---- */

static struct {
	const struct tracker_set *set;
	uint32_t of;
	size_t python, watched, other;
} descendants;

/* Data that an agent would miss of the process; empty: none. */
static void find_fault(uint32_t pid, const struct binary_file *file, struct why *why)
{
	const struct tracker_set *set = descendants.set;
	const struct python_live_location location = binary_live_location(file);
	struct python_live live;

	if (python_live_check(pid, &location, &live, why))
		return;
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;

		if (set->items[i].dead || !tracker_attaches(tracker) ||
		    file->binary->probes[i].live)
			continue;
		why_fail(why, 0, "%s: %s", tracker->name, file->binary->probes[i].refused.text);
		return;
	}
}

static bool is_named(uint32_t pid)
{
	for (size_t i = 0; i < named->n; i++) {
		if (named->items[i] == pid)
			return true;
	}
	return false;
}

static void check_descendant(uint32_t pid, void *context)
{
	struct binary_file file = { 0 };
	struct why why = { { 0 } };
	enum binary_kind kind;
	char line[600];

	(void)context;
	if (is_named(pid) || !proc_descends_from(pid, descendants.of) ||
	    proc_descends_from(pid, (uint32_t)getpid()))
		return;
	kind = identify(pid, &file, &why);
	if (kind == BINARY_PYTHON)
		find_fault(pid, &file, &why);
	if (!proc_start_time(pid)) /* ended during the check */
		return;
	if (kind != BINARY_PYTHON && !why.text[0]) {
		descendants.other++;
		return;
	}
	descendants.python++;
	descendants.watched += !why.text[0];
	if (!why.text[0])
		return;
	snprintf(line, sizeof(line), "process %u: %s", pid, why.text);
	doctor_say(false, "descendant", line);
}

/* A master serves no requests: reports the workers. Returns whether any worker is a Python. */
static bool check_descendants(const struct tracker_set *set, uint32_t pid)
{
	char line[200];

	descendants.set = set;
	descendants.of = pid;
	descendants.python = descendants.watched = descendants.other = 0;
	proc_for_each(check_descendant, NULL);
	if (!descendants.python && !descendants.other)
		return false;
	snprintf(line, sizeof(line), "%zu of %zu Python %s can be watched; %zu %s no Python",
		 descendants.watched, descendants.python,
		 counted(descendants.python, "process", "processes"), descendants.other,
		 counted(descendants.other, "runs", "run"));
	doctor_say(descendants.watched == descendants.python, "descendants", line);
	return descendants.python > 0;
}

static void check_process(const struct tracker_set *set, uint32_t pid)
{
	struct binary_file file = { 0 };
	bool descendant;
	struct why why = { { 0 } };

	doctor_section("process %u", pid);
	if (!proc_start_time(pid)) {
		doctor_say(false, "process", "there is no such process on this host");
		return;
	}
	describe_container(pid);
	switch (identify(pid, &file, &why)) {
	case BINARY_PYTHON:
		describe_python(set, pid, &file);
		check_descendants(set, pid);
		return;
	case BINARY_REFUSED:
		describe_refused(set, &why);
		check_descendants(set, pid);
		return;
	case BINARY_UNKNOWN:
		doctor_say(false, "Python", why.text);
		return;
	case BINARY_LINKS_LIBPYTHON:
	case BINARY_OTHER:
		break;
	}
	descendant = check_descendants(set, pid);
	doctor_say(descendant, "Python",
		   descendant ? "no interpreter in this process, but in descendants"
			      : "no interpreter: neither the executable nor a mapped libpython");
}

void doctor_check_processes(struct tracker_set *set, const struct pid_list *pids)
{
	bool all_read;

	named = pids;
	binaries_init(&(struct binaries_hooks){ tracker_set_attach_binary, tracker_set_leave_binary,
						set });
	for (size_t i = 0; i < pids->n; i++)
		check_process(set, pids->items[i]);
	all_read = readers_stop();
	reader_processes_stop();
	if (binaries_done() && all_read)
		tracker_set_close(set);
}
