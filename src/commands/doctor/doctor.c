// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan doctor`: checks this host and processes, with reasons for each failure. Each tracker
 * is loaded and attached for a moment.
 */
#include <elf.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "commands/database.h"
#include "commands/commands.h"
#include "commands/doctor/counts.h"
#include "commands/doctor/report.h"
#include "commands/doctor/spans.h"
#include "commands/pids.h"
#include "base/config.h"
#include "base/log.h"
#include "process/binaries.h"
#include "host/cgroup.h"
#include "base/clock.h"
#include "host/kernel.h"
#include "process/discovery.h"
#include "host/memory_limit.h"
#include "host/proc.h"
#include "workers/reader_process.h"
#include "workers/readers.h"
#include "host/every_call.h"
#include "process/runtime_addresses.h"
#include "trackers/trackers.h"

static struct pid_list pids;
static bool verbose, as_json;

/* Time limit for a stalled process or file. */
static const uint64_t PATIENCE_NS = 5 * NSEC_PER_SEC;

static const struct option options[] = {
	{ .key = "pid",
	  .type = OPTION_PIDS,
	  .target = &pids,
	  .arg = "PID",
	  .help = "check this process too (host pid); repeatable",
	  .letter = 'p' },
	{ .key = "degrade",
	  .type = OPTION_LIST,
	  .target = &kernel_degraded,
	  .arg = "FEATURE",
	  .help = "act as if the kernel lacked FEATURE" },
	{ .key = "verbose",
	  .type = OPTION_BOOL,
	  .target = &verbose,
	  .help = "list the kernel features and the fallback for each missing feature",
	  .letter = 'v',
	  .flag_only = true },
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "print a JSON object instead of text",
	  .flag_only = true },
};
const struct option_table doctor_options = { options, ARRAY_SIZE(options) };

static int quiet_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
	return 0;
}

static bool check_kernel(void)
{
	struct why why = { { 0 } };
	struct utsname name;
	bool ok = kernel_check(&why) == 0;

	uname(&name);
	doctor_say(ok, "kernel", ok ? name.release : why.text);
	if (ok && !kernel_reads_processes(&why))
		doctor_say(false, "rights", why.text);
	return ok;
}

static void no_event(void *context, struct running_tracker *running, const void *event, size_t size)
{
	(void)context;
	(void)running;
	(void)event;
	(void)size;
}

/* Reports a running tracker; a high price is not a failure. */
static void say_running(const struct running_tracker *running)
{
	char line[600];
	struct why why = { { 0 } };

	if (tracker_runs_on_every_call(running))
		every_call_why(&why);
	snprintf(line, sizeof(line), "loads and attaches%s%s", why.text[0] ? "; but " : "",
		 why.text);
	doctor_say(true, running->tracker->name, line);
}

static bool check_trackers(struct tracker_set *set)
{
	static const struct string_list all;
	struct why why = { { 0 } };
	int err = tracker_set_open(set, &all, false, UINT64_MAX, no_event, NULL, &why);

	if (!err)
		err = tracker_set_attach(set, &why);
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			say_running(&set->items[i]);
	}
	for (size_t i = 0; i < set->n_refused; i++)
		doctor_say(false, set->refused[i].tracker->name, set->refused[i].why.text);
	return err ? doctor_say(false, "trackers", why.text) : set->n_refused == 0;
}

/* ---- processes ---- */

/* Static: may outlive the waiting function. */
static struct discovery look;
static bool is_discovered;

static void on_discovered(struct discovery *at)
{
	(void)at;
	is_discovered = true;
}

/* Same discovery as the agent's, but synchronous. */
static enum binary_kind identify(uint32_t pid, struct binary_file *ret, struct why *why)
{
	uint64_t until_ns = clock_monotonic_ns() + PATIENCE_NS;

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
	snprintf(line, sizeof(line), "%zu probes, found by %s%s%s", binary->probes[i].links.n,
		 tracker->python->method(binary), symbols ? ": " : "", symbols ? symbols : "");
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
		 "offsets by %s; %u interpreter%s, %u threads (%u compared with the kernel's), "
		 "%u modules",
		 binary->image.minor >= 13 ? "its own description" : "a table of versions",
		 live.interpreters, live.interpreters == 1 ? "" : "s", live.threads,
		 live.known_threads, live.modules);
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
	for (size_t i = 0; i < pids.n; i++) {
		if (pids.items[i] == pid)
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
	snprintf(line, sizeof(line),
		 "%zu of %zu Python processes can be watched; %zu run no Python",
		 descendants.watched, descendants.python, descendants.other);
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

static void check_processes(struct tracker_set *set)
{
	bool all_read;

	binaries_init(&(struct binaries_hooks){ tracker_set_attach_binary, tracker_set_leave_binary,
						set });
	for (size_t i = 0; i < pids.n; i++)
		check_process(set, pids.items[i]);
	all_read = readers_stop();
	reader_processes_stop();
	if (binaries_done() && all_read)
		tracker_set_close(set);
}

static int print_findings(struct why *why)
{
	return as_json ? doctor_print_json(why) : doctor_print(verbose, why);
}

/* --spans: a question to the database, from any machine. */
static int examine_spans(struct why *why)
{
	doctor_spans_check();
	return print_findings(why);
}

static int examine(struct why *why)
{
	static struct tracker_set set;
	int err = reader_processes_start(memory_limit(), why);

	if (err)
		return err;
	reader_process_patience(PATIENCE_NS);
	log_set_level(LOG_LEVEL_NONE); /* findings replace log messages */
	libbpf_set_print(quiet_libbpf);
	clock_calibrate();
	doctor_section("this host");
	if (check_kernel()) {
		check_trackers(&set);
		kernel_for_each_feature(doctor_feature);
		check_processes(&set);
	}
	if (doctor_counts_wanted())
		doctor_counts_check();
	log_set_level(LOG_LEVEL_INFO);
	return print_findings(why);
}

/* -ESRCH: pids are given, and none exists. */
static int check_any_exists(struct why *why)
{
	for (size_t i = 0; i < pids.n; i++) {
		if (proc_start_time(pids.items[i]))
			return 0;
	}
	return pids.n ? why_fail(why, ESRCH, "there is no process %u on this host", pids.items[0])
		      : 0;
}

int command_doctor(int argc, char **argv)
{
	const struct option_table tables[] = { doctor_options,
					       doctor_counts_options,
					       doctor_spans_options,
					       clickhouse_options,
					       { 0 } };
	struct why why = { { 0 } };
	bool ok;
	int err = pids_parse(tables, argc, argv, &pids, &why);

	if (err > 0) {
		puts("usage: underspan doctor [-p] [PID]... [-v | --json]\n"
		     "       underspan doctor --agent=HOST:PORT | --clickhouse=URL | "
		     "--store=DIR\n"
		     "       underspan doctor --spans [--clickhouse=URL | --store=DIR]\n\n"
		     "Checks whether this host and its processes can be watched: the result first,\n"
		     "then the details. --spans: whether spans of services join with rows, and why\n"
		     "not.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = kernel_check_degraded(&why);
	if (!err)
		err = doctor_spans_check_options(&why);
	if (!err)
		err = check_any_exists(&why);
	if (!err)
		err = doctor_spans_wanted() ? examine_spans(&why) : examine(&why);
	ok = doctor_all_ok();
	doctor_forget();
	config_free(tables);
	return err || ok ? command_end(err, &why) : EXIT_FAILED;
}
