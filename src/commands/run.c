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
#include "commands/database.h"
#include "commands/commands.h"
#include "commands/run_check.h"
#include "base/log.h"
#include "pipeline/options.h"
#include "host/kernel.h"
#include "base/stop.h"
#include "trackers/trackers.h"

static struct agent_options agent_options = {
	.report_interval_ns = 10 * NSEC_PER_SEC,
	.health_interval_ns = 12 * 3600 * NSEC_PER_SEC,
};
static bool to_stdout, list_only, check_only;
static char *host;
static int log_level = LOG_LEVEL_INFO;
static const char *const log_levels[] = { "error", "warn", "info", "debug", NULL };

static const struct option options[] = {
	{ .key = "trackers",
	  .type = OPTION_LIST,
	  .target = &agent_options.trackers,
	  .arg = "A,B",
	  .help = "run only these trackers",
	  .otherwise = "all" },
	{ .key = "list",
	  .type = OPTION_BOOL,
	  .target = &list_only,
	  .help = "list the trackers as JSON lines and exit",
	  .flag_only = true },
	{ .key = "check",
	  .type = OPTION_BOOL,
	  .target = &check_only,
	  .help = "check the configuration, print what would run, and exit",
	  .flag_only = true },
	{ .key = "pid",
	  .type = OPTION_PIDS,
	  .target = &agent_options.pids,
	  .arg = "PID",
	  .help = "watch these processes (host pids) and all descendants; repeatable",
	  .letter = 'p' },
	{ .key = "duration",
	  .type = OPTION_SECONDS,
	  .target = &agent_options.duration_ns,
	  .arg = "S",
	  .help = "exit after this long",
	  .otherwise = "SIGTERM ends it",
	  .letter = 'd' },
	{ .key = "stdout",
	  .type = OPTION_BOOL,
	  .target = &to_stdout,
	  .help = "print rows as JSON lines instead of sending them to ClickHouse",
	  .group = "database" },
	{ .key = "host",
	  .type = OPTION_STRING,
	  .target = &host,
	  .arg = "NAME",
	  .help = "the rows' host column",
	  .otherwise = "this machine's name" },
	{ .key = "report_interval",
	  .type = OPTION_SECONDS,
	  .target = &agent_options.report_interval_ns,
	  .arg = "S",
	  .help = "interval of the agent's rows in ebpf_agent",
	  .min = 1,
	  .max = 3600,
	  .reloadable = true },
	{ .key = "health_interval",
	  .type = OPTION_SECONDS,
	  .target = &agent_options.health_interval_ns,
	  .arg = "S",
	  .help = "interval at which rows of ebpf_probe_health are repeated (rows expire after "
		  "7 days)",
	  .min = 1,
	  .max = 604800 },
	{ .key = "degrade",
	  .type = OPTION_LIST,
	  .target = &kernel_degraded,
	  .arg = "FEATURE",
	  .help = "act as if the kernel lacked FEATURE, to test a fallback; doctor -v lists the "
		  "features" },
	{ .key = "log_level",
	  .type = OPTION_CHOICE,
	  .target = &log_level,
	  .arg = "LEVEL",
	  .help = "error, warn, info or debug",
	  .choices = log_levels,
	  .reloadable = true },
};
const struct option_table run_options = { options, ARRAY_SIZE(options) };

/* tables of the command, four modules, all trackers, and the end mark */
enum { MAX_TABLES = MAX_TRACKERS + 6 };

/* Fills the option tables: command, modules, trackers, {0}. */
static void collect_tables(struct option_table tables[MAX_TABLES])
{
	size_t n = 0;

	tables[n++] = run_options;
	tables[n++] = pipeline_options;
	tables[n++] = clickhouse_options;
	tables[n++] = governor_options;
	tables[n++] = metrics_options;
	for (size_t i = 0; all_trackers[i]; i++) {
		if (all_trackers[i]->n_options)
			tables[n++] = tracker_options(all_trackers[i]);
	}
	tables[n] = (struct option_table){ 0 };
}

static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	AUTO_FREE char *text = NULL; /* of a long verifier log the end is relevant */
	char *next;

	/* libbpf's warnings are handled here; its text is for developers */
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

/* Resolves the target, creates the tables of an embedded store, opens the sink. */
static int open_clickhouse(struct clickhouse_target *target, struct sink **ret_sink,
			   struct why *why)
{
	int err;

	clickhouse_config.writes = clickhouse_config.stays = true;
	err = clickhouse_resolve(&clickhouse_config, target, why);
	if (err)
		return err;
	if (clickhouse_config.store) {
		struct clickhouse_endpoint starting = target->endpoints[0];
		const struct schema_request request = {
			.traces = clickhouse_config.traces,
			.own_store = true,
		};

		starting.give_up = stop_requested;
		err = clickhouse_schema_apply(&starting, &request, why);
	}
	if (!err)
		err = sink_clickhouse_new(target->endpoints, target->n_endpoints,
					  pipeline_async_insert, ret_sink, why);
	if (err)
		clickhouse_release(target);
	return err;
}

/* Rejects unknown names: a mistyped name would silently have no effect. */
static int check_shed_first(struct why *why)
{
	const struct string_list *list = &pipeline_limits.shed_first;
	int err = 0;

	for (size_t i = 0; i < list->n && !err; i++)
		err = trackers_check_name("shed_first", list->items[i], why);
	return err;
}

/* Each with where it was given: a variable of the environment is easily forgotten. */
static int fail_several(struct why *why)
{
	const struct {
		const char *key;
		bool given;
	} places[] = {
		{ "clickhouse", clickhouse_config.clickhouse },
		{ "store", clickhouse_config.store },
		{ "stdout", to_stdout },
	};
	char list[600] = "";
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (places[i].given)
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s (%.150s)",
						len ? ", " : "", places[i].key,
						config_where(places[i].key));
	}
	return why_fail(why, EINVAL, "several places for the rows: %s: give only one", list);
}

static int check_output(struct why *why)
{
	int n = to_stdout + (clickhouse_config.clickhouse != NULL) +
		(clickhouse_config.store != NULL);

	if (n == 1)
		return 0;
	if (!n)
		return why_fail(why, EINVAL,
				"no place for the rows: give --clickhouse=URL, --store=DIR "
				"(embedded) or --stdout");
	return fail_several(why);
}

/* ---- SIGHUP ---- */

static struct option_table all_tables[MAX_TABLES];
static int the_argc;
static char **the_argv;
static struct clickhouse_target the_target = { .store = { .pidfd = -1, .directory = -1 } };
static struct sink *the_sink;
static bool target_changed;

static void apply_output(void)
{
	agent_options.limits = pipeline_limits;
	if (to_stdout) /* rows are printed immediately */
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

/* Renews servers, user and password (reads the file again). */
static int renew_target(struct why *why)
{
	struct clickhouse_target fresh, old = the_target;
	int err = clickhouse_resolve(&clickhouse_config, &fresh, why);

	if (err)
		return err;
	/* unchanged servers keep connections and backoff */
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

/* Applies the new values: all or none. */
static int apply(struct why *why)
{
	int err = check_output(why);

	if (err)
		why_fail(why, -err,
			 "a reload changes clickhouse to other servers only: restart the agent for "
			 "another place for the rows (clickhouse, store or stdout)");
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
		log_info("reloaded: %s",
			 target_changed ? "new password for ClickHouse" : "nothing has changed");
	if (needs_restart.text[0])
		log_warn("reload: restart the agent to change: %s", needs_restart.text);
	return 0;
}

/* Before trackers load, which takes seconds on a busy host. An embedded store starts later. */
static int check_servers(struct why *why)
{
	struct clickhouse_target target;
	int err;

	if (!clickhouse_config.clickhouse)
		return 0;
	err = clickhouse_resolve(&clickhouse_config, &target, why);
	if (!err)
		clickhouse_release(&target);
	return err;
}

static int run(struct why *why)
{
	struct agent *agent = NULL;
	struct sink *sink = NULL;
	bool ended;
	int err;

	err = check_servers(why);
	/* host check before the sink: start nothing if tracing is impossible */
	if (!err)
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
	else if (stop_requested()) /* stopped during the start: not a failure */
		err = 0;
	ended = agent_free(agent);
	clickhouse_release(&the_target);
	if (!ended)
		agent_give_back();
	return err;
}

/* For programs: names and keys are words of [a-z0-9_.], which need no escapes. */
static void print_tracker(const struct tracker *tracker)
{
	printf("{\"tracker\": \"%s\", \"tables\": [\"%s\"", tracker->name, tracker->table.name);
	if (tracker->second_table)
		printf(", \"%s\"", tracker->second_table->name);
	printf("], \"of_host\": %s, \"probes_python\": %s, \"shed_rank\": %u, \"options\": [",
	       tracker->of_host ? "true" : "false", tracker_attaches(tracker) ? "true" : "false",
	       tracker->shed_rank);
	for (size_t i = 0; i < tracker->n_options; i++)
		printf("%s\"%s\"", i ? ", " : "", tracker->options[i].key);
	puts("]}");
}

static int print_trackers(struct why *why)
{
	for (size_t i = 0; all_trackers[i]; i++)
		print_tracker(all_trackers[i]);
	return fflush(stdout) ? why_fail(why, errno, "cannot write: %s", strerror(errno)) : 0;
}

/* A program and its arguments, as other profilers start one, or an option without dashes. */
static int refuse_words(char **words, struct why *why)
{
	const char *word = words[0];
	const struct option *o = config_find_option(all_tables, word, strcspn(word, "="));

	if (o)
		return why_fail(why, EINVAL, "unexpected argument '%.200s'; did you mean --%s?",
				word, o->key);
	return why_fail(why, EINVAL,
			"unexpected argument '%.200s': run starts no program, `--pid=PID` chooses "
			"one that runs; options are --NAME=VALUE, --help lists them",
			word);
}

int command_run(int argc, char **argv)
{
	struct option_table *tables = all_tables;
	struct why why = { { 0 } };
	char *words[16];
	size_t n_words = ARRAY_SIZE(words);
	int err;

	stop_block_signals();
	collect_tables(tables);
	the_argc = argc;
	the_argv = argv;
	if (config_remember_defaults(tables))
		return EXIT_FAILED;
	err = config_parse(tables, argc, argv, words, &n_words, &why);
	if (!err && n_words)
		err = refuse_words(words, &why);
	if (err > 0) {
		puts("usage: underspan run [OPTIONS]\n\nWatches this host and writes rows to "
		     "ClickHouse.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err && list_only) {
		err = print_trackers(&why);
		config_free(tables);
		config_forget_defaults();
		return command_end(err, &why);
	}
	if (!err)
		err = check_output(&why);
	if (!err)
		err = check_shed_first(&why);
	if (!err)
		err = kernel_check_degraded(&why);
	if (!err && check_only) {
		err = run_check(tables, &agent_options, to_stdout, &why);
	} else if (!err) {
		apply_output();
		agent_options.host = host;
		agent_options.reload = reload;
		agent_options.ends_in_time = true;
		libbpf_set_print(print_libbpf);
		err = run(&why);
	}
	config_free(tables);
	config_forget_defaults();
	return command_end(err, &why);
}
