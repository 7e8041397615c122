// SPDX-License-Identifier: Apache-2.0
/* Options as tables: flags, environment and JSON file walk the same entries. See config.h. */
#include "base/config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config_parse.h"
#include "base/config_value.h"

enum { MAX_SET = 256 };

static const struct option_table *known; /* tables of all commands, see config_set_known() */
static const char *default_path;
static const struct option_table *default_keys;

/* The options that were given, and where. By key: a reload sets the same keys in other targets. */
static struct {
	const char *key, *where;
} given[MAX_SET];
static size_t n_given;

void config_set_known(const struct option_table *all)
{
	known = all;
}

void config_use_default_file(const char *path, const struct option_table *keys)
{
	default_path = path;
	default_keys = keys;
}

/* ---- precedence ---- */

/* Returns the previous origin of the value and records `p->origin`. */
static enum origin remember(struct parse *p, const struct option *o)
{
	enum origin before = FROM_DEFAULT;
	size_t i = 0;

	while (i < p->n_remembered && p->remembered[i].option != o)
		i++;
	if (i == MAX_REMEMBERED)
		return before;
	if (i < p->n_remembered)
		before = p->remembered[i].origin;
	else
		p->remembered[p->n_remembered++].option = o;
	p->remembered[i].origin = p->origin;
	return before;
}

/* Clears options of the same group with a lower precedence. */
static void replace_group(struct parse *p, const struct option *o)
{
	for (size_t i = 0; i < p->n_remembered; i++) {
		const struct option *other = p->remembered[i].option;

		if (other != o && other->group && !strcmp(other->group, o->group) &&
		    p->remembered[i].origin < p->origin)
			config_clear(other);
	}
}

static void note_where(const struct parse *p, const struct option *o)
{
	size_t i = 0;

	while (i < n_given && strcmp(given[i].key, o->key) != 0)
		i++;
	if (i == MAX_SET)
		return;
	given[i].key = o->key;
	given[i].where = p->where;
	if (i == n_given)
		n_given++;
}

void config_prepare(struct parse *p, const struct option *o)
{
	note_where(p, o);
	if (o->type == OPTION_PIDS && remember(p, o) < p->origin)
		config_clear(o);
	if (o->group) {
		remember(p, o);
		replace_group(p, o);
	}
}

const char *config_where(const char *key)
{
	for (size_t i = 0; i < n_given; i++) {
		if (!strcmp(given[i].key, key))
			return given[i].where;
	}
	return NULL;
}

bool config_from_default_file(const char *key)
{
	const char *where = config_where(key);

	return where && default_path && !strcmp(where, default_path);
}

int config_set_option(struct parse *p, const struct option *o, const char *text)
{
	config_prepare(p, o);
	return config_set(o, text, p->why);
}

static struct parse begin_parse(const struct option_table *tables, struct why *why)
{
	return (struct parse){ .tables = tables,
			       .keys = tables,
			       .known = known,
			       .default_path = default_path,
			       .default_keys = default_keys ?: tables,
			       .why = why };
}

int config_read_file(const struct option_table *tables, const char *path, struct why *why)
{
	struct parse p = begin_parse(tables, why);

	p.origin = FROM_FILE;
	return config_file_read(&p, path);
}

/* ---- the environment ---- */

static int read_environment(struct parse *p)
{
	p->origin = FROM_ENVIRONMENT;
	p->where = "environment";
	for (const struct option_table *t = p->tables; t->options; t++) {
		for (size_t i = 0; i < t->n; i++) {
			const struct option *o = &t->options[i];
			struct why inner = { { 0 } }, *why = p->why;
			const char *value;
			char name[128];
			int err;

			if (o->flag_only)
				continue;
			value = getenv(config_variable(o->key, name, sizeof(name)));
			if (!value || !*value)
				continue;
			p->why = &inner;
			err = config_set_option(p, o, value);
			p->why = why;
			if (err)
				return why_fail(why, -err, "%s: %.400s", name, inner.text);
		}
	}
	return 0;
}

/* ---- flags ---- */

static const struct option *find_letter(const struct option_table *tables, char letter)
{
	for (; tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++) {
			if (tables->options[i].letter == letter)
				return &tables->options[i];
		}
	}
	return NULL;
}

/* -p VALUE or -pVALUE */
static int parse_letter(struct parse *p, int argc, char **argv, int *i)
{
	const struct option *o = find_letter(p->tables, argv[*i][1]);
	const char *value = argv[*i][2] ? &argv[*i][2] : NULL;
	size_t len = strcspn(argv[*i] + 1, "=");
	char hint[128];

	if (!o || (len > 1 && config_find_option(p->tables, argv[*i] + 1, len))) /* "-pid=3" */
		return why_fail(p->why, EINVAL, "unknown option %s%s", argv[*i],
				config_hint(p->tables, argv[*i] + 1, len, "--",
					    "; --help lists the options", hint, sizeof(hint)));
	if (!value && o->type != OPTION_BOOL && *i + 1 < argc)
		value = argv[++*i];
	return config_set_option(p, o, value);
}

/* Of --no-NAME, as other programs have it. */
static const struct option *negated_option(const struct option_table *tables, const char *name,
					   size_t len)
{
	const struct option *o = len > 3 && !strncmp(name, "no", 2) && strchr("-_", name[2])
					 ? config_find_option(tables, name + 3, len - 3)
					 : NULL;

	return o && o->type == OPTION_BOOL ? o : NULL;
}

static int parse_flag(struct parse *p, int argc, char **argv, int *i)
{
	const char *name = argv[*i] + 2;
	const char *value = strchr(name, '=');
	size_t len = value ? (size_t)(value - name) : strlen(name);
	const struct option *o = config_find_option(p->tables, name, len);
	const struct option *negated = negated_option(p->tables, name, len);
	char hint[128];

	if (!o && negated)
		return why_fail(p->why, EINVAL, "unknown option --%.*s: --%s=false", (int)len, name,
				negated->key);
	if (!o)
		return why_fail(p->why, EINVAL, "unknown option --%.*s%s", (int)len, name,
				config_hint(p->tables, name, len, "--",
					    "; --help lists the options", hint, sizeof(hint)));
	if (value)
		value++;
	else if (o->bare)
		value = o->bare;
	else if (o->type != OPTION_BOOL && *i + 1 < argc)
		value = argv[++*i];
	return config_set_option(p, o, value);
}

/* SQL may begin with a comment, which differs from a flag only by the space. */
static bool is_comment(const char *word)
{
	return word[0] == '-' && word[1] == '-' && (word[2] == ' ' || word[2] == '\n');
}

static int refuse_word(const struct option_table *tables, const char *word, struct why *why)
{
	const struct option *o = config_find_option(tables, word, strcspn(word, "="));

	return why_fail(why, EINVAL, "unexpected argument '%.200s'%s%s%s", word,
			o ? "; did you mean --" : "; options are --NAME=VALUE, --help lists them",
			o ? o->key : "", o ? "?" : "");
}

int config_parse(const struct option_table *tables, int argc, char **argv, char **ret_words,
		 size_t *n_words, struct why *why)
{
	struct parse p = begin_parse(tables, why);
	size_t capacity = n_words ? *n_words : 0, n = 0;
	bool flags = true;
	int err, skip;

	n_given = 0;
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return 1;
	}
	err = config_files_read(&p, argc, argv);
	if (!err)
		err = read_environment(&p);
	p.origin = FROM_FLAG;
	p.where = CONFIG_WHERE_FLAG;
	for (int i = 1; !err && i < argc; i++) {
		const char *path;

		skip = flags ? config_file_words(argc, argv, i, &path) : 0;
		if (skip) { /* the file is already read */
			i += skip - 1;
		} else if (flags && !strcmp(argv[i], "--")) {
			flags = false;
		} else if (flags && !strncmp(argv[i], "--", 2) && !is_comment(argv[i])) {
			err = parse_flag(&p, argc, argv, &i);
		} else if (flags && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-') {
			err = parse_letter(&p, argc, argv, &i);
		} else if (n == capacity) {
			err = refuse_word(tables, argv[i], why);
		} else {
			ret_words[n++] = argv[i];
		}
	}
	if (!err && n_words)
		*n_words = n;
	return err;
}

int config_set_default(const struct option_table *tables, const char *key, const char *value,
		       struct why *why)
{
	const struct option *o = config_find_option(tables, key, strlen(key));

	return o ? config_set(o, value, why) : why_fail(why, EINVAL, "no option '%s'", key);
}

static void clear(const struct option *o, void *context)
{
	(void)context;
	if (o->type != OPTION_BOOL) /* owns no memory */
		config_clear(o);
}

void config_free(const struct option_table *tables)
{
	config_for_each(tables, clear, NULL);
}
