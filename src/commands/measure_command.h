/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common part of the commands that measure processes live, or ask a database about a window of
 * time: gil, offcpu, requests, timeline and top. From the options to the exit code.
 */
#ifndef UNDERSPAN_COMMANDS_MEASURE_COMMAND_H
#define UNDERSPAN_COMMANDS_MEASURE_COMMAND_H

#include <jansson.h>

#include "commands/measure.h"

struct measure_default {
	const char *key, *value; /* an option of a tracker or of the governor */
};

struct measure_command {
	const struct option_table *options; /* the command's own */
	const char *tracker;		    /* its options are options of the command; NULL: none */
	bool compares;			    /* has window_against_options */
	const struct measure_default *defaults; /* end with {0} */
	void (*print_usage)(void);
	bool (*is_stored)(void);	 /* whether a database is asked; NULL: window_answers() */
	int (*check)(struct why *why);	 /* the options together */
	int (*ask)(struct why *why);	 /* a database, and print */
	int (*measure)(struct why *why); /* live, and print */
};

/* Runs the command; returns the exit code. */
int measure_command(const struct measure_command *command, int argc, char **argv);

/* All rows are needed, and the measurement is short: no governor. */
#define MEASURE_GOVERN_NOTHING                                                                     \
	{ "governor.cpu_percent", "0" }, { "governor.tracker_cpu_percent", "0" }

/* "process 12 (web), 5.0 s"; with the report of a window "service web, 18:00:00 to .." . */
void measure_describe(const json_t *stored, const struct measured *measured, char *buf,
		      size_t size);

/* Notes of a live report: unmeasured and ended processes, events (`events`) without a row. */
void measure_add_notes(json_t *report, const struct measured *measured, const char *events);

#endif
