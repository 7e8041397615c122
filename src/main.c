// SPDX-License-Identifier: Apache-2.0
/* The `underspan` program: selects the command or the help page. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands/database.h"
#include "commands/commands.h"
#include "commands/elsewhere.h"
#include "base/log.h"
#include "base/stack_limit.h"
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

/* `what`: "command" or "topic". */
static int refuse(const char *what, const char *name)
{
	struct nearest nearest;
	char hint[64];

	if (elsewhere_service(name)) {
		log_error("there is no %s '%s': the service is systemd's, `systemctl %s "
			  "underspan`; without it, `underspan run` in a terminal, Ctrl-C to end",
			  what, name, name);
		return EXIT_USAGE;
	}
	if (elsewhere_command(name)) {
		log_error("there is no %s '%s': %s", what, name, elsewhere_command(name));
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

	if (argc == 2 && !strcmp(argv[1], "help"))
		argv[1] = (char *)"--help";
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *instead = elsewhere_option(command->name, argv[i]);

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

/* `words`: after "help" */
static int help(int n, char **words)
{
	const char *topic = n ? words[0] : "help";
	const struct command *command = find_command(topic);
	char *argv[] = { (char *)topic, (char *)"--help", NULL };

	if (topic[0] == '-' || !strcmp(topic, "help"))
		return print_usage(stdout, EXIT_DONE);
	if (n > 1) {
		log_error("help: one command or topic at a time, as in `underspan help %.64s`; "
			  "unexpected argument '%.64s'",
			  topic, words[1]);
		return EXIT_USAGE;
	}
	if (command)
		return run_command(command, 2, argv);
	return help_topic(topic) ? EXIT_DONE : refuse("topic", topic);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
	return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

static int run_word(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;

	if (!word)
		return print_usage(stderr, EXIT_USAGE);
	if (is_one_of(word, "help", "--help", "-h") || !strcmp(word, "-?"))
		return help(argc - 2, argv + 2);
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

/* A command whose output is lost has failed. */
int main(int argc, char **argv)
{
	int status;

	stack_limit_raise();
	status = run_word(argc, argv);
	if (status != EXIT_DONE || (!fflush(stdout) && !ferror(stdout)))
		return status;
	log_error("cannot write to stdout: %s", strerror(errno));
	return EXIT_FAILED;
}
