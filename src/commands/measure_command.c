// SPDX-License-Identifier: Apache-2.0
/* A command that measures or asks. See measure_command.h. */
#include "commands/measure_command.h"

#include <stdio.h>

#include "commands/commands.h"
#include "commands/database.h"
#include "commands/report.h"
#include "commands/watched.h"
#include "commands/window.h"
#include "commands/window_text.h"

enum { TABLES_MAX = 7 };

static void list_tables(const struct measure_command *c, struct option_table tables[TABLES_MAX])
{
	size_t n = 0;

	tables[n++] = *c->options;
	tables[n++] = measure_options;
	if (c->tracker)
		tables[n++] = measure_tracker_options(c->tracker);
	tables[n++] = window_options;
	if (c->compares)
		tables[n++] = window_against_options;
	tables[n++] = clickhouse_options;
	tables[n] = (struct option_table){ 0 };
}

static int set_defaults(const struct measure_command *c, struct why *why)
{
	int err = 0;

	for (const struct measure_default *d = c->defaults; d->key && !err; d++)
		err = config_set_default(commands_all_options(), d->key, d->value, why);
	return err;
}

static int run(const struct measure_command *c, struct why *why)
{
	bool stored = c->is_stored ? c->is_stored() : window_answers();
	int err = stored ? window_check_not_timed(why) : 0;

	if (!err && stored)
		err = window_complete(why);
	if (!err)
		err = c->check(why);
	if (!err)
		err = stored ? c->ask(why) : c->measure(why);
	return err;
}

int measure_command(const struct measure_command *c, int argc, char **argv)
{
	struct option_table tables[TABLES_MAX];
	struct why why = { { 0 } };
	int err = set_defaults(c, &why);

	list_tables(c, tables);
	if (!err)
		err = measure_parse(tables, argc, argv, &why);
	if (err > 0) {
		c->print_usage();
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = run(c, &why);
	measure_end();
	config_free(tables);
	return command_end(err, &why);
}

/* ---- texts ---- */

void measure_describe(const json_t *stored, const struct measured *measured, char *buf, size_t size)
{
	char whose[600], when[160];

	if (!stored) {
		snprintf(buf, size, "%s, %.1f s", watched_text(), measured_seconds(measured));
		return;
	}
	window_text(stored, whose, sizeof(whose));
	window_time_text(stored, when, sizeof(when));
	snprintf(buf, size, "%s, %s", whose, when);
}

void measure_add_notes(json_t *report, const struct measured *measured, const char *events)
{
	char text[128];

	for (const struct watched *w = watched_first(); w; w = w->next) {
		if (watched_is_unmeasured(w))
			report_add_note(report, "%s", w->reason.text);
	}
	for (size_t i = 0; i < measured->n_words; i++)
		report_add_note(report, "%s", measured->words[i].text);
	if (measured->lost)
		report_add_note(report, "%s",
				report_lost(text, sizeof(text), (double)measured->lost, events));
	if (measured->gone)
		report_add_note(report, "%s ended after %.1f s", watched_short_text(),
				measured_seconds(measured));
}
