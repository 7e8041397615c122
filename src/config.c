// SPDX-License-Identifier: Apache-2.0
/* Options as tables: flags and the JSON file walk the same entries. See config.h. */
#include "config.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_FILE_MAX_BYTES = 1 << 20 };

/* A dash in what the user typed equals the underscore of the key. */
static bool key_equal(const char *key, const char *typed, size_t typed_len)
{
	size_t i;

	for (i = 0; i < typed_len && key[i]; i++) {
		if (key[i] != typed[i] && !(key[i] == '_' && typed[i] == '-'))
			return false;
	}
	return i == typed_len && !key[i];
}

static const struct option *find_option(const struct option_table *tables, const char *typed,
					size_t len)
{
	for (; tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++) {
			if (key_equal(tables->options[i].key, typed, len))
				return &tables->options[i];
		}
	}
	return NULL;
}

static int parse_uint(const struct option *o, const char *s, struct why *why)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno || end == s || *end || s[0] == '-' || s[0] == '+' || s[0] == ' ')
		return why_fail(why, EINVAL, "%s: '%s' is not a whole number", o->key, s);
	if (v < o->min || (o->max && v > o->max))
		return why_fail(why, EINVAL, "%s: %s is out of range, use %llu to %llu", o->key, s,
				(unsigned long long)o->min,
				(unsigned long long)(o->max ? o->max : UINT64_MAX));
	*(uint64_t *)o->target = v;
	return 0;
}

static int parse_number(const struct option *o, const char *s, struct why *why)
{
	double v;
	char *end;

	v = strtod(s, &end);
	if (end == s || *end || !isfinite(v))
		return why_fail(why, EINVAL, "%s: '%s' is not a number", o->key, s);
	if (v < (double)o->min || (o->max && v > (double)o->max))
		return why_fail(why, EINVAL, "%s: %s is out of range, use %llu to %llu", o->key, s,
				(unsigned long long)o->min,
				(unsigned long long)(o->max ? o->max : UINT64_MAX));
	*(double *)o->target = v;
	return 0;
}

static int parse_seconds(const struct option *o, const char *s, struct why *why)
{
	uint64_t max = o->max ? o->max : 1000000000;
	double v;
	char *end;

	v = strtod(s, &end);
	if (end == s || *end || !isfinite(v))
		return why_fail(why, EINVAL, "%s: '%s' is not a number of seconds", o->key, s);
	if (v < (double)o->min || v > (double)max)
		return why_fail(why, EINVAL, "%s: %s s is out of range, use %llu to %llu", o->key,
				s, (unsigned long long)o->min, (unsigned long long)max);
	*(uint64_t *)o->target = (uint64_t)llround(v * (double)NSEC_PER_SEC);
	return 0;
}

static int parse_bool(const struct option *o, const char *s, struct why *why)
{
	if (!s || !strcmp(s, "true") || !strcmp(s, "1") || !strcmp(s, "yes"))
		*(bool *)o->target = true;
	else if (!strcmp(s, "false") || !strcmp(s, "0") || !strcmp(s, "no"))
		*(bool *)o->target = false;
	else
		return why_fail(why, EINVAL, "%s: '%s' is neither true nor false", o->key, s);
	return 0;
}

static int parse_choice(const struct option *o, const char *s, struct why *why)
{
	char all[200] = "";

	for (int i = 0; o->choices[i]; i++) {
		if (!strcmp(o->choices[i], s)) {
			*(int *)o->target = i;
			return 0;
		}
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
			 o->choices[i]);
	}
	return why_fail(why, EINVAL, "%s: '%s' is not one of %s", o->key, s, all);
}

static int set_string(const struct option *o, const char *s, struct why *why)
{
	char *copy = strdup(s);

	if (!copy)
		return why_fail(why, ENOMEM, "out of memory");
	free(*(char **)o->target);
	*(char **)o->target = copy;
	return 0;
}

static int add_item(const struct option *o, const char *s, size_t len, struct why *why)
{
	char *item = strndup(s, len);

	if (!item)
		return why_fail(why, ENOMEM, "out of memory");
	if (o->type == OPTION_PIDS) {
		struct pid_list *list = o->target;
		uint32_t *grown;
		char *end;
		unsigned long v;

		errno = 0;
		v = strtoul(item, &end, 10);
		if (errno || end == item || *end || item[0] == '-' || v == 0 || v > INT_MAX) {
			why_fail(why, EINVAL, "%s: '%s' is not a process id", o->key, item);
			free(item);
			return -EINVAL;
		}
		free(item);
		grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
		if (!grown)
			return why_fail(why, ENOMEM, "out of memory");
		list->items = grown;
		list->items[list->n++] = (uint32_t)v;
		return 0;
	}
	struct string_list *list = o->target;
	char **grown = realloc(list->items, (list->n + 1) * sizeof(*grown));

	if (!grown) {
		free(item);
		return why_fail(why, ENOMEM, "out of memory");
	}
	list->items = grown;
	list->items[list->n++] = item;
	return 0;
}

static void clear_list(const struct option *o)
{
	if (o->type == OPTION_LIST) {
		struct string_list *list = o->target;

		for (size_t i = 0; i < list->n; i++)
			free(list->items[i]);
		free(list->items);
		*list = (struct string_list){ 0 };
	} else if (o->type == OPTION_PIDS) {
		struct pid_list *list = o->target;

		free(list->items);
		*list = (struct pid_list){ 0 };
	}
}

static int add_items(const struct option *o, const char *s, struct why *why)
{
	while (true) {
		const char *comma = strchr(s, ',');
		size_t len = comma ? (size_t)(comma - s) : strlen(s);
		int err;

		if (len == 0)
			return why_fail(why, EINVAL, "%s: empty entry in the list", o->key);
		err = add_item(o, s, len, why);
		if (err || !comma)
			return err;
		s = comma + 1;
	}
}

/* `s` is NULL for a flag without a value. */
static int set_option(const struct option *o, const char *s, struct why *why)
{
	if (o->type == OPTION_BOOL)
		return parse_bool(o, s, why);
	if (!s || !*s)
		return why_fail(why, EINVAL, "%s: needs a value: --%s=%s", o->key, o->key,
				o->arg ? o->arg : "VALUE");
	switch (o->type) {
	case OPTION_UINT:
		return parse_uint(o, s, why);
	case OPTION_NUMBER:
		return parse_number(o, s, why);
	case OPTION_SECONDS:
		return parse_seconds(o, s, why);
	case OPTION_STRING:
		return set_string(o, s, why);
	case OPTION_CHOICE:
		return parse_choice(o, s, why);
	case OPTION_LIST:
		clear_list(o); /* the last --trackers wins, and beats the file */
		return add_items(o, s, why);
	case OPTION_PIDS:
		return add_items(o, s, why);
	case OPTION_BOOL:
		break;
	}
	return 0;
}

/* A JSON scalar as the text that the same value has as a flag. */
static int json_to_text(const char *key, const json_t *v, char *buf, size_t size, struct why *why)
{
	if (json_is_string(v)) {
		if (json_string_length(v) >= size)
			return why_fail(why, EINVAL, "%s: value too long", key);
		snprintf(buf, size, "%s", json_string_value(v));
	} else if (json_is_integer(v)) {
		snprintf(buf, size, "%lld", (long long)json_integer_value(v));
	} else if (json_is_real(v)) {
		snprintf(buf, size, "%.9g", json_real_value(v));
	} else if (json_is_boolean(v)) {
		snprintf(buf, size, "%s", json_is_true(v) ? "true" : "false");
	} else {
		return why_fail(why, EINVAL, "%s: expected a string, number or boolean", key);
	}
	return 0;
}

static int set_from_json(const struct option *o, const json_t *v, struct why *why)
{
	char text[4096];
	const json_t *item;
	size_t i;
	int err;

	if (o->flag_only)
		return why_fail(why, EINVAL, "%s: can be given as a flag only", o->key);
	if (!json_is_array(v)) {
		err = json_to_text(o->key, v, text, sizeof(text), why);
		return err ? err : set_option(o, text, why);
	}
	if (o->type != OPTION_LIST && o->type != OPTION_PIDS)
		return why_fail(why, EINVAL, "%s: takes one value, not an array", o->key);
	clear_list(o);
	json_array_foreach ((json_t *)v, i, item) {
		err = json_to_text(o->key, item, text, sizeof(text), why);
		if (!err)
			err = add_item(o, text, strlen(text), why);
		if (err)
			return err;
	}
	return 0;
}

static int read_object(const struct option_table *tables, const char *prefix, json_t *object,
		       struct why *why)
{
	const char *name;
	json_t *v;

	json_object_foreach (object, name, v) {
		const struct option *o;
		char key[256];
		int err;

		if (snprintf(key, sizeof(key), "%s%s", prefix, name) >= (int)sizeof(key))
			return why_fail(why, EINVAL, "a key of over %zu characters", sizeof(key));
		o = find_option(tables, key, strlen(key));
		if (o) {
			err = set_from_json(o, v, why);
		} else if (json_is_object(v) && !*prefix) {
			char nested[256];

			snprintf(nested, sizeof(nested), "%.200s.", name);
			err = read_object(tables, nested, v, why);
		} else {
			err = why_fail(why, EINVAL, "unknown key '%s'; --help lists the keys", key);
		}
		if (err)
			return err;
	}
	return 0;
}

int config_read_file(const struct option_table *tables, const char *path, struct why *why)
{
	AUTO_FCLOSE FILE *f = fopen(path, "re");
	AUTO_FREE char *text = NULL;
	struct why inner = { { 0 } };
	json_error_t error;
	json_t *root;
	size_t len;
	int err;

	if (!f)
		return why_fail(why, EINVAL, "cannot read the configuration file %s: %s", path,
				strerror(errno));
	text = malloc(CONFIG_FILE_MAX_BYTES + 1);
	if (!text)
		return why_fail(why, ENOMEM, "out of memory");
	len = fread(text, 1, CONFIG_FILE_MAX_BYTES + 1, f);
	if (ferror(f))
		return why_fail(why, EINVAL, "cannot read the configuration file %s", path);
	if (len > CONFIG_FILE_MAX_BYTES)
		return why_fail(why, EINVAL, "%s: larger than 1 MiB, not a configuration file",
				path);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return why_fail(why, EINVAL, "%s:%d: not valid JSON: %s", path, error.line,
				error.text);
	if (json_is_object(root))
		err = read_object(tables, "", root, &inner);
	else
		err = why_fail(&inner, EINVAL, "expected one JSON object");
	json_decref(root);
	return err ? why_fail(why, -err, "%s: %.400s", path, inner.text) : 0;
}

/* Reads the file that -c/--config names, before any flag is applied. */
static int read_named_file(const struct option_table *tables, int argc, char **argv,
			   struct why *why)
{
	for (int i = 1; i < argc; i++) {
		const char *path = NULL;

		if (!strcmp(argv[i], "--"))
			break;
		if (!strcmp(argv[i], "-c") || !strcmp(argv[i], "--config")) {
			if (i + 1 == argc)
				return why_fail(why, EINVAL, "%s: needs a file name", argv[i]);
			path = argv[++i];
		} else if (!strncmp(argv[i], "--config=", 9)) {
			path = argv[i] + 9;
		}
		if (path) {
			int err = config_read_file(tables, path, why);

			if (err)
				return err;
		}
	}
	return 0;
}

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
static int parse_letter(const struct option_table *tables, int argc, char **argv, int *i,
			struct why *why)
{
	const struct option *o = find_letter(tables, argv[*i][1]);
	const char *value = argv[*i][2] ? &argv[*i][2] : NULL;

	if (!o)
		return why_fail(why, EINVAL, "unknown option %s; --help lists the options",
				argv[*i]);
	if (!value && o->type != OPTION_BOOL && *i + 1 < argc)
		value = argv[++*i];
	return set_option(o, value, why);
}

static int parse_flag(const struct option_table *tables, int argc, char **argv, int *i,
		      struct why *why)
{
	const char *name = argv[*i] + 2;
	const char *value = strchr(name, '=');
	size_t len = value ? (size_t)(value - name) : strlen(name);
	const struct option *o = find_option(tables, name, len);

	if (!o)
		return why_fail(why, EINVAL, "unknown option --%.*s; --help lists the options",
				(int)len, name);
	if (value)
		value++;
	else if (o->type != OPTION_BOOL && *i + 1 < argc)
		value = argv[++*i];
	return set_option(o, value, why);
}

int config_parse(const struct option_table *tables, int argc, char **argv, char **ret_words,
		 size_t *n_words, struct why *why)
{
	size_t capacity = n_words ? *n_words : 0, n = 0;
	bool flags = true;
	int err;

	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return 1;
	}
	err = read_named_file(tables, argc, argv, why);
	for (int i = 1; !err && i < argc; i++) {
		/* the file's work is done */
		if (flags && (!strcmp(argv[i], "-c") || !strcmp(argv[i], "--config"))) {
			i++;
		} else if (flags && !strncmp(argv[i], "--config=", 9)) {
			continue;
		} else if (flags && !strcmp(argv[i], "--")) {
			flags = false;
		} else if (flags && !strncmp(argv[i], "--", 2)) {
			err = parse_flag(tables, argc, argv, &i, why);
		} else if (flags && argv[i][0] == '-' && argv[i][1]) {
			err = parse_letter(tables, argc, argv, &i, why);
		} else if (n == capacity) {
			err = why_fail(why, EINVAL, "unexpected argument '%s'", argv[i]);
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
	const struct option *o = find_option(tables, key, strlen(key));

	return o ? set_option(o, value, why) : why_fail(why, EINVAL, "no option '%s'", key);
}

void config_print_help(const struct option_table *tables)
{
	puts("  -c FILE, --config=FILE            read options from a JSON file; flags win");
	for (; tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++) {
			const struct option *o = &tables->options[i];
			char flag[128];

			snprintf(flag, sizeof(flag), "%.*s--%s%s%s", o->letter ? 4 : 0,
				 (char[]){ '-', o->letter, ',', ' ', 0 }, o->key, o->arg ? "=" : "",
				 o->arg ? o->arg : "");
			printf("  %-33s %s\n", flag, o->help);
		}
	}
}

void config_free(const struct option_table *tables)
{
	for (; tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++) {
			const struct option *o = &tables->options[i];

			if (o->type == OPTION_STRING) {
				free(*(char **)o->target);
				*(char **)o->target = NULL;
			}
			clear_list(o);
		}
	}
}
