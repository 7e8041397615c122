/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options as tables: one entry gives the flag, the key of the JSON configuration file, the
 * environment variable, --help and the checks. `--handoff.min_duration_us=50`,
 * {"handoff": {"min_duration_us": 50}}, {"handoff.min_duration_us": 50} and
 * UNDERSPAN_HANDOFF_MIN_DURATION_US=50 are equivalent; dashes in flags equal underscores.
 * Precedence: flag, environment, file, default (initial value of the target).
 */
#ifndef UNDERSPAN_BASE_CONFIG_H
#define UNDERSPAN_BASE_CONFIG_H

#include "base/config_search.h"
#include "base/option.h"
#include "base/util.h"

/*
 * The tables of all commands: a file's keys of other commands are ignored. NULL (default): unknown
 * keys are refused.
 */
void config_set_known(const struct option_table *all);

/*
 * The file read without -c, if it exists: only the keys of `keys`, NULL: all keys of the command.
 * `-c none` and --no-config disable it.
 */
#define CONFIG_DEFAULT_FILE "/etc/underspan/underspan.json"
void config_use_default_file(const char *path, const struct option_table *keys);

#define CONFIG_WHERE_FLAG "flag"
/* After config_parse(): where a value was given: a file's path, "environment" or
 * CONFIG_WHERE_FLAG; NULL: the default holds. */
const char *config_where(const char *key);
bool config_from_default_file(const char *key);

/* Warns about variables UNDERSPAN_* that match no key of `all`. */
void config_check_environment(const struct option_table *all);

/*
 * Parses argv[1..] against the tables. Positional words are collected in order in `ret_words`
 * (pointers into argv; `*n_words` in: capacity, out: count). Reads the file of `-c
 * FILE`/`--config=FILE` first, then the environment, then flags. Returns 0, -EINVAL (why names the
 * key and the fix), or 1 for --help (the caller prints).
 */
int config_parse(const struct option_table *tables, int argc, char **argv, char **ret_words,
		 size_t *n_words, struct why *why);

/*
 * Sets a command's own default of an option; to be called before the first config_parse(). -EINVAL
 * with why: unknown key or bad value.
 */
int config_set_default(const struct option_table *tables, const char *key, const char *value,
		       struct why *why);

/* Reads one JSON configuration file into the tables' targets. Returns 0, -EINVAL, -ENOMEM. */
int config_read_file(const struct option_table *tables, const char *path, struct why *why);

/* Saves the targets' values as defaults for config_reload(). To be called before the first
 * config_parse(). */
int config_remember_defaults(const struct option_table *tables);
void config_forget_defaults(void);

/*
 * Parses file and flags again. `reloadable` options get their new values, listed in `changed`;
 * other options that differ are listed in `needs_restart`. Nothing changes on an error, including
 * an error of `apply`, which is called with the new values set.
 */
int config_reload(const struct option_table *tables, int argc, char **argv,
		  int (*apply)(struct why *why), struct why *changed, struct why *needs_restart,
		  struct why *why);

/* Prints what was given: key, value, origin. */
void config_print_given(const struct option_table *tables);

/* Prints the tables for --help: by heading, in 80 columns, with defaults. */
void config_print_help(const struct option_table *tables);

/* Frees the values of OPTION_STRING, _LIST and _PIDS targets. */
void config_free(const struct option_table *tables);

#endif
