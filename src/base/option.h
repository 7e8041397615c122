/* SPDX-License-Identifier: Apache-2.0 */
/* An option as an entry of a table. Tables are read by config.h. */
#ifndef UNDERSPAN_BASE_OPTION_H
#define UNDERSPAN_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
	OPTION_UINT,	/* uint64_t;           within min..max, of its unit */
	OPTION_NUMBER,	/* double;             within min..max */
	OPTION_SECONDS, /* uint64_t, ns;       seconds, fractions allowed, or with a unit (250ms,
			   2m); within min..max seconds */
	OPTION_STRING,	/* char *, heap        */
	OPTION_CHOICE,	/* int;                index into `choices` */
	OPTION_LIST,	/* struct string_list; --x=A,B or JSON array of strings */
	OPTION_PIDS,	/* struct pid_list;    repeatable, --x=1,2 or JSON array of numbers */
};

/* Unit of a plain number of an OPTION_UINT. Other units of the same kind can be given:
 * 5ms, 8MiB. */
enum option_unit {
	UNIT_NONE, /* no unit is accepted */
	UNIT_US,
	UNIT_MS,
	UNIT_BYTES,
	UNIT_KIB,
	UNIT_MIB,
};

struct option {
	const char *key; /* "clickhouse", "handoff.min_duration_us" */
	enum option_type type;
	void *target;
	const char *arg;  /* placeholder in --help, NULL for a plain flag */
	const char *help; /* without the default: --help reads the default from the target */
	const char *bare; /* OPTION_STRING: value of a flag without '=', which takes no next word */
	const char *otherwise;	    /* the default in words, for a target that is 0 or empty */
	enum option_unit unit;	    /* OPTION_UINT */
	uint64_t min, max;	    /* OPTION_UINT, OPTION_SECONDS; max 0: no limit */
	const char *const *choices; /* OPTION_CHOICE, NULL-terminated */
	bool flag_only;		    /* not allowed in the file */
	bool reloadable;	    /* can change at run time: see config_reload() */
	char letter;		    /* short form: 'p' for -p; 0: none */
	/*
	 * Options of a group (OPTION_STRING, OPTION_BOOL) replace each other: --store replaces
	 * "clickhouse" of the file. The command has to refuse two of the same origin.
	 */
	const char *group;
};

/* One table per module; an array of tables ends with {0}. Options are searched in order. */
struct option_table {
	const struct option *options;
	size_t n;
	const char *title; /* heading in --help; NULL: continues the previous table */
};

#endif
