// SPDX-License-Identifier: Apache-2.0
/* The `underspan` program: selects the command or the help page. */
#include <stdio.h>
#include <string.h>

#include "commands/database.h"
#include "commands/commands.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/util.h"
#include "base/version.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
	enum {
		TAKES_NOTHING,
		TAKES_DATABASE, /* queries an existing database */
		TAKES_ALL,
	} takes; /* of the host's configuration file */
} commands[] = {
	{ "run", command_run, "watch this host and write rows to ClickHouse", .takes = TAKES_ALL },
	{ "store", command_store, "serve an embedded ClickHouse over its HTTP interface",
	  .takes = TAKES_ALL },
	{ "sql", command_sql, "ask ClickHouse or a store a question", .takes = TAKES_DATABASE },
	{ "schema", command_schema, "print the tables' DDL, or create the tables with --apply",
	  .takes = TAKES_DATABASE },
	{ "explain", command_explain, "where one request's time went, span by span",
	  .takes = TAKES_DATABASE },
	{ "requests", command_requests, "the slow requests, and where their time went",
	  .takes = TAKES_DATABASE },
	{ "gil", command_gil, "GIL waits of a process: waiters, holders and times",
	  .takes = TAKES_DATABASE },
	{ "offcpu", command_offcpu, "where a process's threads were off the CPU, as a flame graph",
	  .takes = TAKES_DATABASE },
	{ "timeline", command_timeline,
	  "requests, threads and the GIL on one time axis, for Perfetto", .takes = TAKES_DATABASE },
	{ "top", command_top, "where Python processes wait, live, second by second",
	  .takes = TAKES_DATABASE },
	{ "doctor", command_doctor, "check this host and its processes", .takes = TAKES_DATABASE },
};

static int print_usage(FILE *out, int status)
{
	fputs("usage: underspan COMMAND [OPTIONS]\n\n"
	      "The latency under OpenTelemetry spans, seen from the kernel.\n\n",
	      out);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\n"
	      "  help       `underspan help TOPIC`: help for a command, or for a topic:\n",
	      out);
	help_list_topics(out);
	fputs("  version    the version (also --version)\n"
	      "\n`underspan COMMAND --help` lists a command's options.\n",
	      out);
	return status;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	}
	return NULL;
}

/* Words for what the service manager does. */
static bool is_of_the_service(const char *word)
{
	static const char *const words[] = { "start",  "stop",	 "restart", "reload",
					     "status", "enable", "disable" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(word, words[i]))
			return true;
	}
	return false;
}

/* Words that other programs have for what is done differently here. */
static const char *elsewhere(const char *word)
{
	static const struct {
		const char *word, *instead;
	} words[] = {
		{ "logs", "`journalctl -u underspan`" },
		{ "log", "`journalctl -u underspan`" },
		{ "config",
		  "`underspan run --check` prints it, `underspan help config` explains it" },
		{ "check",
		  "`underspan run --check` checks the configuration, `underspan doctor` the host" },
		{ "upgrade", "install the newer package, then `underspan schema --apply`" },
		{ "migrate", "`underspan schema --apply` makes and upgrades the tables" },
		{ "init", "`underspan schema --apply` makes and upgrades the tables" },
		{ "uninstall", "the package manager does it, as in `apt remove underspan`" },
		{ "completion",
		  "the packages have it for bash, `make doc` writes build/doc/underspan.bash" },
		{ "ps", "`underspan doctor` lists the Python processes" },
		{ "list", "`underspan doctor` lists processes, `underspan requests` requests" },
		{ "query", "`underspan sql 'SELECT ...'`" },
		{ "spans", "`underspan doctor --spans`" },
		{ "slow", "`underspan requests`" },
		{ "trace", "`underspan explain TRACE_ID`, or `underspan timeline -p PID`" },
		{ "record", "`underspan timeline -p PID -o FILE.pftrace`" },
		{ "watch", "`underspan top`" },
		{ "profile", "`underspan offcpu -p PID`" },
		{ "flamegraph", "`underspan offcpu -p PID -o FILE.html`" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(words[i].word, word))
			return words[i].instead;
	}
	return NULL;
}

/* Options that other commands have, given to one that cannot have them: what to do instead. */
static const char *option_elsewhere(const char *command, const char *arg)
{
	static const struct {
		const char *command, *option, *instead;
	} options[] = {
		{ "explain", "-p", "`underspan requests -p PID` lists requests with their ids" },
		{ "explain", "--pid", "`underspan requests -p PID` lists requests with their ids" },
		{ "explain", "--since",
		  "`underspan requests --since=10m` lists requests with their ids" },
		{ "explain", "--slowest", "`underspan requests` lists the slowest with their ids" },
		{ "explain", "--service",
		  "`underspan requests --service=NAME` lists requests with their ids" },
		{ "sql", "-q", "the query is an argument, as in `underspan sql 'SELECT 1'`" },
		{ "sql", "--query", "the query is an argument, as in `underspan sql 'SELECT 1'`" },
	};
	size_t len = strcspn(arg, "=");

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (!strcmp(options[i].command, command) && strlen(options[i].option) == len &&
		    !strncmp(options[i].option, arg, len))
			return options[i].instead;
	}
	return NULL;
}

/* `what`: "command" or "topic". */
static int refuse(const char *what, const char *name)
{
	struct nearest nearest;
	char hint[64];

	if (is_of_the_service(name)) {
		log_error("there is no %s '%s': the service is systemd's, `systemctl %s "
			  "underspan`; without it, `underspan run` in a terminal, Ctrl-C to end",
			  what, name, name);
		return EXIT_USAGE;
	}
	if (elsewhere(name)) {
		log_error("there is no %s '%s': %s", what, name, elsewhere(name));
		return EXIT_USAGE;
	}
	nearest_begin(&nearest, name, strlen(name));
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		nearest_try(&nearest, commands[i].name);
	nearest_try(&nearest, "help");
	nearest_try(&nearest, "version");
	for (size_t i = 0; !strcmp(what, "topic") && help_topic_name(i); i++)
		nearest_try(&nearest, help_topic_name(i));
	log_error("there is no %s '%.64s'%s", what, name,
		  nearest_hint(&nearest, "", "; see `underspan help`", hint, sizeof(hint)));
	return EXIT_USAGE;
}

/* A store started by another command, which has already checked the environment. */
static bool has_parent(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--ready_fd=", strlen("--ready_fd=")))
			return true;
	}
	return false;
}

static int run_command(const struct command *command, int argc, char **argv)
{
	static struct option_table keys[2];

	for (int i = 1; i < argc; i++) {
		const char *instead = option_elsewhere(command->name, argv[i]);

		if (instead) {
			log_error("%s has no option %.*s: %s", command->name,
				  (int)strcspn(argv[i], "="), argv[i], instead);
			return EXIT_USAGE;
		}
	}
	config_set_known(commands_all_options());
	keys[0] = clickhouse_options;
	if (!has_parent(argc, argv)) {
		config_check_environment(commands_all_options());
		if (command->takes)
			config_use_default_file(CONFIG_DEFAULT_FILE,
						command->takes == TAKES_ALL ? NULL : keys);
	}
	return command->main(argc, argv);
}

static int help(const char *topic)
{
	const struct command *command = find_command(topic);
	char *argv[] = { (char *)topic, (char *)"--help", NULL };

	if (command)
		return run_command(command, 2, argv);
	return help_topic(topic) ? EXIT_DONE : refuse("topic", topic);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
	return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;

	if (!word)
		return print_usage(stderr, EXIT_USAGE);
	if (is_one_of(word, "help", "--help", "-h"))
		return argc > 2 && argv[2][0] != '-' ? help(argv[2])
						     : print_usage(stdout, EXIT_DONE);
	if (is_one_of(word, "version", "--version", "-V") || !strcmp(word, "-v")) {
		puts("underspan " UNDERSPAN_VERSION);
		return EXIT_DONE;
	}
	if (find_command(word))
		return run_command(find_command(word), argc - 1, argv + 1);
	if (word[0] == '-') {
		log_error("%.64s: the command comes first, as in `underspan run %.64s`; see "
			  "`underspan help`",
			  word, word);
		return EXIT_USAGE;
	}
	return refuse("command", word);
}
