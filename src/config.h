/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options as tables: one entry gives the flag, the key of the JSON configuration file, --help and
 * the checks. `--handoff.min_duration_us=50` and {"handoff": {"min_duration_us": 50}} or
 * {"handoff.min_duration_us": 50} are the same; a dash in a flag counts as an underscore.
 * A flag beats the file, the file beats the default that the target holds beforehand.
 */
#ifndef UNDERSPAN_CONFIG_H
#define UNDERSPAN_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "util.h"

struct string_list {
	char **items;
	size_t n;
};
struct pid_list {
	uint32_t *items;
	size_t n;
};

enum option_type {
	OPTION_BOOL,	/* bool;               --x, --x=true, --x=false */
	OPTION_UINT,	/* uint64_t;           within min..max */
	OPTION_NUMBER,	/* double;             within min..max */
	OPTION_SECONDS, /* uint64_t, ns;       seconds, fractions allowed, within min..max seconds
			 */
	OPTION_STRING,	/* char *, heap        */
	OPTION_CHOICE,	/* int;                index into `choices` */
	OPTION_LIST,	/* struct string_list; --x=A,B or JSON array of strings */
	OPTION_PIDS,	/* struct pid_list;    repeatable, --x=1,2 or JSON array of numbers */
};

struct option {
	const char *key; /* "clickhouse", "handoff.min_duration_us" */
	enum option_type type;
	void *target;
	const char *arg; /* placeholder in --help, NULL for a plain flag */
	const char *help;
	uint64_t min, max;	    /* OPTION_UINT, OPTION_SECONDS; max 0: no limit */
	const char *const *choices; /* OPTION_CHOICE, NULL-terminated */
	bool flag_only;		    /* cannot stand in the file */
	bool reloadable;	    /* may change while the agent runs: see config_reload() */
	char letter;		    /* 'p': -p is short for it; 0: none */
};

/* One table a module; an array of these ends with {0}. Options are looked up in order. */
struct option_table {
	const struct option *options;
	size_t n;
};

/*
 * Parses argv[1..] against the tables. Words that are no flags are collected in order in
 * `ret_words` (pointers into argv; `*n_words` in: capacity, out: count). A `-c
 * FILE`/`--config=FILE` is read first, so that flags win. Returns 0, -EINVAL (why names the key and
 * the fix), or 1 when --help was asked for (the caller prints).
 */
int config_parse(const struct option_table *tables, int argc, char **argv, char **ret_words,
		 size_t *n_words, struct why *why);

/*
 * Another default for a command of its own: the option of this key has this value, before the first
 * config_parse(). -EINVAL with why: there is no such option or value.
 */
int config_set_default(const struct option_table *tables, const char *key, const char *value,
		       struct why *why);

/* Reads one JSON configuration file into the tables' targets. Returns 0, -EINVAL, -ENOMEM. */
int config_read_file(const struct option_table *tables, const char *path, struct why *why);

/* Keeps what the targets hold for config_reload(). Before the first config_parse(). */
int config_remember_defaults(const struct option_table *tables);
void config_forget_defaults(void);

/*
 * Parses file and flags once more. Options that are `reloadable` get their new values; the keys of
 * those that did are listed in `changed`, of those that differ but cannot in `needs_restart`. On
 * an error nothing has changed: also when `apply`, called with the new values in place, has one.
 */
int config_reload(const struct option_table *tables, int argc, char **argv,
		  int (*apply)(struct why *why), struct why *changed, struct why *needs_restart,
		  struct why *why);

/* Prints the tables as --help shows them. */
void config_print_help(const struct option_table *tables);

/* Releases what OPTION_STRING, _LIST and _PIDS targets hold. */
void config_free(const struct option_table *tables);

#endif
