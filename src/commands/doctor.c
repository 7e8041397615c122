// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan doctor`: what works on this host, and in one process, and why the rest does not. It
 * tries instead of guessing: each tracker is loaded and attached for a moment.
 */
#include <elf.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include <bpf/libbpf.h>

#include "clickhouse/target.h"
#include "commands/commands.h"
#include "commands/doctor_counts.h"
#include "config.h"
#include "log.h"
#include "probe/binaries.h"
#include "probe/cgroup.h"
#include "probe/clock.h"
#include "probe/kernel.h"
#include "probe/look.h"
#include "probe/proc.h"
#include "readers.h"
#include "trackers/python_places.h"
#include "trackers/trackers.h"

static struct pid_list pids;

/* With a process, or its file, that does not answer. */
static const uint64_t PATIENCE_NS = 5 * NSEC_PER_SEC;

static const struct option options[] = {
	{ .key = "pid",
	  .type = OPTION_PIDS,
	  .target = &pids,
	  .arg = "PID",
	  .help = "look at this process too (host pid); repeatable",
	  .letter = 'p' },
	{ .key = "degrade",
	  .type = OPTION_LIST,
	  .target = &kernel_degraded,
	  .arg = "FEATURE",
	  .help = "look as if the kernel lacked it" },
};

/* One finding a line. Returns ok, so that callers can sum up. */
static bool say(bool ok, const char *what, const char *detail)
{
	printf("  %-4s %-14s %s\n", ok ? "ok" : "NO", what, detail);
	return ok;
}

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
	return say(ok, "kernel", ok ? name.release : why.text);
}

/* A fallback is no fault: the mark says only what there is. */
static void say_feature(const char *name, bool there, const char *without)
{
	printf("  %-4s %-22s %s%s\n", there ? "yes" : "no", name, there ? "" : "without it, ",
	       there ? "" : without);
}

static void no_event(size_t index, const void *event, size_t size, void *context)
{
	(void)index;
	(void)event;
	(void)size;
	(void)context;
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
			say(true, set->items[i].tracker->name, "loads and attaches");
	}
	for (size_t i = 0; i < set->n_refused; i++)
		say(false, set->refused[i].tracker->name, set->refused[i].why.text);
	return err ? say(false, "trackers", why.text) : set->n_refused == 0;
}

/* ---- one process ---- */

/* On the stack of whoever waits for it no longer it must not be. */
static struct look look;
static bool has_looked;

static void looked(struct look *at)
{
	(void)at;
	has_looked = true;
}

/* The same look as the agent's, but that somebody waits for the answer. */
static enum binary_kind identify(uint32_t pid, struct binary_file *ret, struct why *why)
{
	uint64_t until_ns = clock_monotonic_ns() + PATIENCE_NS;

	has_looked = false;
	look = (struct look){ .before = BINARY_UNKNOWN, .any_library = true, .done = looked };
	if (!look_begin(&look, pid)) {
		why_fail(why, 0, "it cannot be looked at");
		return BINARY_REFUSED;
	}
	while (!has_looked && clock_monotonic_ns() < until_ns) {
		struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

		poll(&fd, 1, 100);
		readers_take(NULL);
	}
	if (!has_looked) {
		why_fail(why, 0, "nobody knows: it, or the file that it runs, does not answer");
		return BINARY_UNKNOWN;
	}
	*ret = look.file;
	*why = look.why;
	if (look.kind == BINARY_REFUSED && !why->text[0])
		why_fail(why, 0, "its program cannot be read: %s",
			 strerror(look.err ? -look.err : EACCES));
	return look.kind;
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
	say(true, "container", line);
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
	say(true, "Python", line);
	snprintf(line, sizeof(line), "%s, build id %s",
		 image->machine == EM_AARCH64 ? "arm64" : "x86-64", id);
	say(true, "build", line);
}

/* How the bounds of a collection were found: the other methods have no more to tell. */
static const char *symbols_of(const struct tracker *tracker, const struct python_binary *binary)
{
	return !strcmp(tracker->name, "gc_pause") && binary->image.gc_method == GC_METHOD_SYMBOL
		       ? binary->image.gc_symbols
		       : NULL;
}

/* `walkable`: whose Python stacks can be taken, wherever they are. */
static bool describe_tracker(const struct tracker *tracker, const struct python_binary *binary,
			     size_t i, bool walkable)
{
	const char *symbols = symbols_of(tracker, binary);
	char line[512];

	if (!tracker->attach_binary && !tracker->walks_threads)
		return say(true, tracker->name, "needs no probe in the process");
	if (!tracker->attach_binary)
		return say(true, tracker->name,
			   walkable ? "needs no probe in the process; rows have Python stacks"
				    : "needs no probe in the process; rows have no Python stacks");
	if (!binary->live[i])
		return say(false, tracker->name, binary->refused[i].text);
	snprintf(line, sizeof(line), "%zu probes, found by %s%s%s", binary->links[i].n,
		 tracker->binary_method(binary), symbols ? ": " : "", symbols ? symbols : "");
	return say(true, tracker->name, line);
}

/* Names of threads, Python stacks and waits for the GIL come from there. */
static bool describe_state(uint32_t pid, const struct binary_file *file)
{
	const struct python_binary *binary = file->binary;
	const struct python_live_place place = python_live_place_of(file);
	struct python_live live;
	struct why why = { { 0 } };
	char line[256];

	if (python_live_check(pid, &place, &live, &why))
		return say(false, "state", why.text);
	snprintf(line, sizeof(line),
		 "offsets by %s; %u interpreter%s, %u threads (%u of them compared with the "
		 "kernel's), %u modules",
		 binary->image.minor >= 13 ? "its own description" : "a table of versions",
		 live.interpreters, live.interpreters == 1 ? "" : "s", live.threads,
		 live.known_threads, live.modules);
	return say(true, "state", line);
}

static bool describe_python(const struct tracker_set *set, uint32_t pid,
			    const struct binary_file *file)
{
	bool walkable, ok;

	describe_build(file->binary);
	ok = describe_state(pid, file);
	walkable = ok && python_places_walkable(file->binary);
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			ok &= describe_tracker(set->items[i].tracker, file->binary, i, walkable);
	}
	return ok;
}

static bool check_process(const struct tracker_set *set, uint32_t pid)
{
	struct binary_file file = { 0 };
	struct why why = { { 0 } };

	printf("\nprocess %u\n", pid);
	if (!proc_start_time(pid))
		return say(false, "process", "there is no such process on this host");
	describe_container(pid);
	switch (identify(pid, &file, &why)) {
	case BINARY_PYTHON:
		return describe_python(set, pid, &file);
	case BINARY_REFUSED:
	case BINARY_UNKNOWN:
		return say(false, "Python", why.text);
	case BINARY_LINKS_LIBPYTHON:
	case BINARY_OTHER:
		break;
	}
	return say(false, "Python",
		   "no interpreter: neither the executable nor a mapped libpython");
}

int command_doctor(int argc, char **argv)
{
	const struct option_table tables[] = {
		{ options, ARRAY_SIZE(options) }, doctor_counts_options, clickhouse_options, { 0 }
	};
	static struct tracker_set set;
	struct why why = { { 0 } };
	bool ok, all_read;
	int err = config_parse(tables, argc, argv, NULL, NULL, &why);

	if (err > 0) {
		puts("usage: underspan doctor [-p PID]... [--agent=HOST:PORT | --clickhouse=URL | --store=DIR]\n\nWhat works on this host and why not.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (err) {
		log_error("%s", why.text);
		return EXIT_USAGE;
	}
	log_set_level(LOG_LEVEL_NONE); /* what the log would say is said here */
	libbpf_set_print(quiet_libbpf);
	clock_calibrate();
	puts("this host");
	ok = check_kernel();
	if (ok) {
		ok = check_trackers(&set);
		puts("\nwhat this kernel has (--degrade=NAME: run as if it had not)");
		kernel_for_each_feature(say_feature);
		binaries_init(&(struct binaries_hooks){ tracker_set_attach_binary,
							tracker_set_leave_binary, &set });
		for (size_t i = 0; i < pids.n; i++)
			ok = check_process(&set, pids.items[i]) && ok;
		all_read = readers_stop();
		binaries_done();
		if (all_read) /* what is held up may go on any moment, and set a probe */
			tracker_set_close(&set);
	}
	if (doctor_counts_wanted())
		ok = doctor_counts_check(say) && ok;
	config_free(tables);
	return ok ? EXIT_DONE : EXIT_FAILED;
}
