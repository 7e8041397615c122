// SPDX-License-Identifier: Apache-2.0
/* The `underspan` program: picks the command and nothing else. */
#include <stdio.h>
#include <string.h>

#include "commands/commands.h"
#include "util.h"
#include "version.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "run", command_run, "watch this host and write rows to ClickHouse" },
	{ "store", command_store, "serve an embedded ClickHouse over its HTTP interface" },
	{ "sql", command_sql, "ask ClickHouse or a store a question" },
	{ "schema", command_schema, "print the tables' DDL, or create them with --apply" },
	{ "explain", command_explain, "where one request's time went, span by span" },
	{ "gil", command_gil, "who waited for a process's GIL, how long, and who held it" },
	{ "offcpu", command_offcpu,
	  "where a process's threads were off the CPU, as a flame graph" },
	{ "doctor", command_doctor, "what works on this host and why not" },
};

static void print_usage(FILE *out)
{
	fputs("usage: underspan COMMAND [OPTIONS]\n\n"
	      "The latency under OpenTelemetry spans, seen from the kernel.\n\n",
	      out);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`underspan COMMAND --help` lists a command's options.\n", out);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_usage(stdout);
		return EXIT_DONE;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("underspan " UNDERSPAN_VERSION);
		return EXIT_DONE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].main(argc - 1, argv + 1);
	}
	fprintf(stderr, "underspan: no command '%s'; `underspan --help` lists them\n", argv[1]);
	return EXIT_USAGE;
}
