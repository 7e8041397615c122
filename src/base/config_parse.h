/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of options, over files, environment and flags. Private to config*.c. */
#ifndef UNDERSPAN_BASE_CONFIG_PARSE_H
#define UNDERSPAN_BASE_CONFIG_PARSE_H

#include "base/config_search.h"

enum { MAX_REMEMBERED = 32 };

enum origin { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG };

struct parse {
	const struct option_table *tables, *keys; /* only options of `keys` are set */
	const struct option_table *known;	  /* tables of all commands; NULL: unknown */
	const char *default_path;		  /* NULL: no default file */
	const struct option_table *default_keys;  /* of the default file */
	enum origin origin;
	const char *where; /* the origin in words */
	struct {
		const struct option *option;
		enum origin origin;
	} remembered[MAX_REMEMBERED]; /* origins of options that accumulate or exclude others */
	size_t n_remembered;
	struct why *why;
};

/* Before an option is set: values of a lower precedence are cleared where they exclude it. */
void config_prepare(struct parse *p, const struct option *o);

/* Prepares and sets. 0, or -errno with why. */
int config_set_option(struct parse *p, const struct option *o, const char *text);

int config_file_read(struct parse *p, const char *path);

/* Reads the files of -c before any flag is applied, otherwise the default file if present. */
int config_files_read(struct parse *p, int argc, char **argv);

/* Number of argv words of a -c option here, 0: none; the file, NULL for `none`. */
int config_file_words(int argc, char **argv, int i, const char **ret_path);

#endif
