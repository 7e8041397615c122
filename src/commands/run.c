// SPDX-License-Identifier: Apache-2.0
/* `underspan run`: the options, the sink, and the agent between them. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <bpf/libbpf.h>

#include "agent/agent.h"
#include "agent/governor.h"
#include "agent/metrics.h"
#include "clickhouse/schema.h"
#include "clickhouse/target.h"
#include "commands/commands.h"
#include "log.h"
#include "pipeline/options.h"
#include "probe/kernel.h"
#include "stop.h"
#include "trackers/trackers.h"

static struct agent_options agent_options = {
	.report_interval_ns = 10 * NSEC_PER_SEC,
};
static bool to_stdout;
static char *host;
static int log_level = LOG_LEVEL_INFO;
static const char *const log_levels[] = { "error", "warn", "info", "debug", NULL };

static const struct option run_options[] = {
	{ .key = "trackers",
	  .type = OPTION_LIST,
	  .target = &agent_options.trackers,
	  .arg = "A,B",
	  .help = "run these trackers only (default: all)" },
	{ .key = "pid",
	  .type = OPTION_PIDS,
	  .target = &agent_options.pids,
	  .arg = "PID",
	  .help = "watch these processes (host pids) and what they start; repeatable" },
	{ .key = "duration",
	  .type = OPTION_SECONDS,
	  .target = &agent_options.duration_ns,
	  .arg = "S",
	  .help = "end after this many seconds (default: run until SIGTERM)" },
	{ .key = "stdout",
	  .type = OPTION_BOOL,
	  .target = &to_stdout,
	  .help = "print rows as JSON lines instead of sending them to ClickHouse" },
	{ .key = "host",
	  .type = OPTION_STRING,
	  .target = &host,
	  .arg = "NAME",
	  .help = "the rows' host column (default: this machine's name)" },
	{ .key = "report_interval",
	  .type = OPTION_SECONDS,
	  .target = &agent_options.report_interval_ns,
	  .arg = "S",
	  .help = "how often the agent writes its own counts to ebpf_agent (10)",
	  .min = 1,
	  .max = 3600,
	  .reloadable = true },
	{ .key = "degrade",
	  .type = OPTION_LIST,
	  .target = &kernel_degraded,
	  .arg = "FEATURE",
	  .help = "act as if the kernel lacked it, to test a fallback; doctor lists them" },
	{ .key = "log_level",
	  .type = OPTION_CHOICE,
	  .target = &log_level,
	  .arg = "LEVEL",
	  .help = "error, warn, info or debug (info)",
	  .choices = log_levels,
	  .reloadable = true },
};

/* the command's, four modules', each tracker's, the end */
enum { MAX_TABLES = MAX_TRACKERS + 6 };

/* Fills the tables of options: the command's, the shared ones, each tracker's, {0}. */
static void collect_tables(struct option_table tables[MAX_TABLES])
{
	size_t n = 0;

	tables[n++] = (struct option_table){ run_options, ARRAY_SIZE(run_options) };
	tables[n++] = pipeline_options;
	tables[n++] = clickhouse_options;
	tables[n++] = governor_options;
	tables[n++] = metrics_options;
	for (size_t i = 0; all_trackers[i]; i++) {
		if (all_trackers[i]->n_options)
			tables[n++] = (struct option_table){ all_trackers[i]->options,
							     all_trackers[i]->n_options };
	}
	tables[n] = (struct option_table){ 0 };
}

static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	AUTO_FREE char *text = NULL; /* a verifier's log is long, and its end tells */
	char *next;

	/* libbpf warns of things that are decided about here; its words matter to developers */
	(void)level;
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return 0;
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		return 0;
	}
	for (char *p = text; p && *p; p = next) {
		next = strchr(p, '\n');
		if (next)
			*next++ = 0;
		log_debug("%s", p);
	}
	return 0;
}

/* Resolves the target, makes the tables of an embedded store, opens the sink. */
static int open_clickhouse(struct clickhouse_target *target, struct sink **ret_sink,
			   struct why *why)
{
	int err = clickhouse_resolve(&clickhouse_config, target, why);

	if (err)
		return err;
	if (clickhouse_config.store) {
		struct clickhouse_endpoint starting = target->endpoints[0];

		starting.give_up = stop_requested;
		err = clickhouse_schema_apply(&starting, NULL, true, why);
	}
	if (!err)
		err = sink_clickhouse_new(target->endpoints, target->n_endpoints,
					  pipeline_async_insert, ret_sink, why);
	if (err)
		clickhouse_release(target);
	return err;
}

/* A name that is nobody's would be a priority that silently does not hold. */
static int check_shed_first(struct why *why)
{
	const struct string_list *list = &pipeline_limits.shed_first;

	for (size_t i = 0; i < list->n; i++) {
		size_t t = 0;

		while (all_trackers[t] && strcmp(all_trackers[t]->name, list->items[i]) != 0)
			t++;
		if (!all_trackers[t])
			return why_fail(why, EINVAL, "shed_first: no tracker is named '%s'",
					list->items[i]);
	}
	return 0;
}

static int check_output(struct why *why)
{
	int n = to_stdout + (clickhouse_config.clickhouse != NULL) +
		(clickhouse_config.store != NULL);

	if (n == 1)
		return 0;
	return why_fail(why, EINVAL,
			"%s: give one of --clickhouse=URL, --store=DIR (embedded) or --stdout",
			n ? "more than one place for the rows" : "no place for the rows");
}

/* ---- SIGHUP ---- */

static struct option_table all_tables[MAX_TABLES];
static int the_argc;
static char **the_argv;
static struct clickhouse_target the_target = { .store.pidfd = -1 };
static struct sink *the_sink;
static bool target_changed;

static void apply_output(void)
{
	agent_options.limits = pipeline_limits;
	if (to_stdout) /* a row is shown as soon as it is known */
		agent_options.limits.batch_age_ns = 0;
	log_set_level((enum log_level)log_level);
}

static bool same_target(const struct clickhouse_target *a, const struct clickhouse_target *b)
{
	bool same = a->n_endpoints == b->n_endpoints;

	for (size_t i = 0; same && i < a->n_endpoints; i++)
		same = clickhouse_endpoint_same(&a->endpoints[i], &b->endpoints[i]);
	return same;
}

/* Servers, user and password, whose file is read once more. */
static int renew_target(struct why *why)
{
	struct clickhouse_target fresh, old = the_target;
	int err = clickhouse_resolve(&clickhouse_config, &fresh, why);

	if (err)
		return err;
	/* with the same ones a connection is kept, and the wait of a server that has failed */
	target_changed = !same_target(&fresh, &old);
	if (target_changed)
		err = sink_clickhouse_replace(the_sink, fresh.endpoints, fresh.n_endpoints, why);
	if (err) {
		clickhouse_release(&fresh);
		return err;
	}
	the_target = fresh;
	clickhouse_release(&old);
	return 0;
}

/* With the new values in place: they hold from here on, or none of them does. */
static int apply(struct why *why)
{
	int err = check_output(why);

	target_changed = false;
	if (!err && clickhouse_config.clickhouse)
		err = renew_target(why);
	if (!err)
		apply_output();
	return err;
}

static int reload(struct agent_options *ret_options, struct why *why)
{
	struct why changed, needs_restart;
	int err = config_reload(all_tables, the_argc, the_argv, apply, &changed, &needs_restart,
				why);

	if (err)
		return err;
	ret_options->report_interval_ns = agent_options.report_interval_ns;
	ret_options->limits = agent_options.limits;
	if (changed.text[0])
		log_info("reloaded: %s", changed.text);
	else
		log_info("reloaded: %s", target_changed ? "another password for ClickHouse"
							: "nothing has changed");
	if (needs_restart.text[0])
		log_warn("reload: these take a restart: %s", needs_restart.text);
	return 0;
}

static int run(struct why *why)
{
	struct agent *agent = NULL;
	struct sink *sink = NULL;
	bool ended;
	int err;

	/* the host first: nothing is started where nothing can be traced */
	err = agent_new(&agent_options, &agent, why);
	if (err)
		return err;
	if (to_stdout)
		sink = sink_stdout_new();
	else
		err = open_clickhouse(&the_target, &sink, why);
	if (!err && !sink)
		err = why_fail(why, ENOMEM, "out of memory");
	the_sink = sink;
	if (!err)
		err = agent_run(agent, sink, the_target.store.pidfd, why);
	else if (stop_requested()) /* given up: not a failure */
		err = 0;
	ended = agent_free(agent);
	clickhouse_release(&the_target);
	if (!ended)
		agent_give_back();
	return err;
}

int command_run(int argc, char **argv)
{
	struct option_table *tables = all_tables;
	struct why why = { { 0 } };
	size_t n_words = 0;
	int err;

	stop_block_signals();
	collect_tables(tables);
	the_argc = argc;
	the_argv = argv;
	if (config_remember_defaults(tables))
		return EXIT_FAILED;
	err = config_parse(tables, argc, argv, NULL, &n_words, &why);
	if (err > 0) {
		puts("usage: underspan run [OPTIONS]\n\nWatches this host and writes rows to "
		     "ClickHouse.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = check_output(&why);
	if (!err)
		err = check_shed_first(&why);
	if (!err)
		err = kernel_check_degraded(&why);
	if (!err) {
		apply_output();
		agent_options.host = host;
		agent_options.reload = reload;
		libbpf_set_print(print_libbpf);
		err = run(&why);
	}
	config_free(tables);
	config_forget_defaults();
	return command_end(err, &why);
}
