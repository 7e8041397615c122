// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan doctor`: checks this host and processes, with reasons for each failure. Each tracker
 * is loaded and attached for a moment.
 */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include <bpf/libbpf.h>

#include "commands/database.h"
#include "commands/commands.h"
#include "commands/doctor/agents.h"
#include "commands/doctor/counts.h"
#include "commands/doctor/processes.h"
#include "commands/doctor/report.h"
#include "commands/doctor/spans.h"
#include "commands/pids.h"
#include "base/config.h"
#include "base/log.h"
#include "base/clock.h"
#include "host/kernel.h"
#include "host/memory_limit.h"
#include "host/proc.h"
#include "workers/reader_process.h"
#include "host/every_call.h"
#include "trackers/trackers.h"

static struct pid_list pids;
static bool verbose, as_json;

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
	if (!kernel_opens_files(&why))
		doctor_say(false, "open files", why.text);
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
	reader_process_patience(DOCTOR_PATIENCE_NS);
	log_set_level(LOG_LEVEL_NONE); /* findings replace log messages */
	libbpf_set_print(quiet_libbpf);
	clock_calibrate();
	doctor_section("this host");
	if (check_kernel()) {
		check_trackers(&set);
		doctor_check_agents();
		kernel_for_each_feature(doctor_feature);
		doctor_check_processes(&set, &pids);
	}
	if (doctor_counts_wanted())
		doctor_counts_check();
	log_set_level(LOG_LEVEL_INFO);
	return print_findings(why);
}

/* -ESRCH: pids are given, and none exists. Without a /proc of this host the kernel's check tells.
 */
static int check_any_exists(struct why *why)
{
	if (!proc_start_time((uint32_t)getpid()))
		return 0;
	for (size_t i = 0; i < pids.n; i++) {
		if (proc_start_time(pids.items[i]))
			return 0;
	}
	return pids.n ? proc_say_missing(pids.items[0], why) : 0;
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
