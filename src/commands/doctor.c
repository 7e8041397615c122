// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan doctor`: what works on this host, and in one process, and why the rest does not. It
 * tries instead of guessing: each tracker is loaded and attached for a moment.
 */
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
#include "probe/proc.h"
#include "trackers/trackers.h"

static struct pid_list pids;

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
	int err = tracker_set_open(set, &all, false, no_event, NULL, &why);

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

static enum binary_kind identify(uint32_t pid, struct python_binary **ret_binary, struct why *why)
{
	AUTO_CLOSE int exe = -1, library = -1;
	enum binary_kind kind;
	char path[4096];

	exe = proc_open_exe(pid, path, sizeof(path));
	if (exe < 0) {
		why_fail(why, -exe, "/proc/%u/exe cannot be opened: %s", pid, strerror(-exe));
		return BINARY_REFUSED;
	}
	kind = binaries_identify(exe, path, pid, ret_binary, why);
	if (kind == BINARY_PYTHON || kind == BINARY_REFUSED)
		return kind;
	library = proc_open_libpython(pid, path, sizeof(path));
	return library < 0 ? BINARY_OTHER : binaries_identify(library, path, pid, ret_binary, why);
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

static bool describe_python(const struct tracker_set *set, const struct python_binary *binary)
{
	char line[1024];
	bool ok = true;

	snprintf(line, sizeof(line), "%u.%u.%u in %s", binary->image.major, binary->image.minor,
		 binary->image.micro, binary->path);
	say(true, "Python", line);
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;

		if (set->items[i].dead)
			continue;
		if (tracker->attach_binary && binary->live[i]) {
			snprintf(line, sizeof(line), "%zu probes, found by %s", binary->links[i].n,
				 tracker->binary_method(binary));
			say(true, tracker->name, line);
		} else if (tracker->attach_binary) {
			ok = say(false, tracker->name, binary->refused[i].text);
		} else {
			say(true, tracker->name, "needs no probe in the process");
		}
	}
	return ok;
}

static bool check_process(const struct tracker_set *set, uint32_t pid)
{
	struct python_binary *binary = NULL;
	struct why why = { { 0 } };

	printf("\nprocess %u\n", pid);
	if (!proc_start_time(pid))
		return say(false, "process", "there is no such process on this host");
	describe_container(pid);
	switch (identify(pid, &binary, &why)) {
	case BINARY_PYTHON:
		return describe_python(set, binary);
	case BINARY_REFUSED:
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
	struct tracker_set set = { 0 };
	struct why why = { { 0 } };
	bool ok;
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
		binaries_done();
		tracker_set_close(&set);
	}
	if (doctor_counts_wanted())
		ok = doctor_counts_check(say) && ok;
	config_free(tables);
	return ok ? EXIT_DONE : EXIT_FAILED;
}
