// SPDX-License-Identifier: Apache-2.0
/* Options as tables: flags, environment and JSON file walk the same entries. See config.h. */
#include "base/config.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config_value.h"

enum { CONFIG_FILE_MAX_BYTES = 1 << 20, MAX_REMEMBERED = 32, MAX_SET = 256 };

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

enum origin { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG };

struct parse {
	const struct option_table *tables, *keys; /* only options of `keys` are set */
	enum origin origin;
	const char *where; /* the origin in words */
	struct {
		const struct option *option;
		enum origin origin;
	} remembered[MAX_REMEMBERED]; /* origins of options that accumulate or exclude others */
	size_t n_remembered;
	struct why *why;
};

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

static void prepare(struct parse *p, const struct option *o)
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

static int set_option(struct parse *p, const struct option *o, const char *text)
{
	prepare(p, o);
	return config_set(o, text, p->why);
}

/* ---- the file ---- */

/* A JSON scalar as text of the equivalent flag. */
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

static int set_from_json(struct parse *p, const struct option *o, const json_t *v)
{
	char text[4096];
	const json_t *item;
	size_t i;
	int err;

	if (!json_is_array(v)) {
		err = json_to_text(o->key, v, text, sizeof(text), p->why);
		return err ? err : set_option(p, o, text);
	}
	if (o->type != OPTION_LIST && o->type != OPTION_PIDS)
		return why_fail(p->why, EINVAL, "%s: expected a single value, not an array%s",
				o->key,
				o->arg && strstr(o->arg, "[,")
					? ": write several as one text, with commas between them"
					: "");
	prepare(p, o);
	config_clear(o);
	json_array_foreach ((json_t *)v, i, item) {
		err = json_to_text(o->key, item, text, sizeof(text), p->why);
		if (!err)
			err = config_add_item(o, text, strlen(text), p->why);
		if (err)
			return err;
	}
	return 0;
}

static int refuse_key(const struct parse *p, const char *key)
{
	char hint[128];

	return why_fail(p->why, EINVAL, "unknown key '%s'%s", key,
			config_hint(known ?: p->tables, key, strlen(key), "",
				    "; --help lists the keys", hint, sizeof(hint)));
}

/* Whether a file may have the key, for a command that has it in files. */
static bool is_key_of_files(const char *key)
{
	for (const struct option_table *t = known; t && t->options; t++) {
		for (size_t i = 0; i < t->n; i++) {
			if (!t->options[i].flag_only && !strcmp(t->options[i].key, key))
				return true;
		}
	}
	return false;
}

static int read_object(struct parse *p, const char *prefix, json_t *object)
{
	const char *name;
	json_t *v;

	json_object_foreach (object, name, v) {
		const struct option *own, *any;
		char key[256];
		int err = 0;

		if (snprintf(key, sizeof(key), "%s%s", prefix, name) >= (int)sizeof(key))
			return why_fail(p->why, EINVAL, "a key of over %zu characters",
					sizeof(key));
		own = config_find_option(p->keys, key, strlen(key));
		any = own ?: config_find_option(p->tables, key, strlen(key));
		any = any ?: config_find_option(known, key, strlen(key));
		if (any && any->flag_only && is_key_of_files(any->key)) {
			continue; /* another command's, of the same name */
		} else if (any && any->flag_only) {
			err = why_fail(p->why, EINVAL, "%s: can be given as a flag only", any->key);
		} else if (own) {
			err = set_from_json(p, own, v);
		} else if (!any && json_is_object(v) && !*prefix) {
			char nested[256];

			snprintf(nested, sizeof(nested), "%.200s.", name);
			err = read_object(p, nested, v);
		} else if (!any) {
			err = refuse_key(p, key);
		} /* else another command's */
		if (err)
			return err;
	}
	return 0;
}

static const char BYTE_ORDER_MARK[] = "\xef\xbb\xbf";

static int read_stream(struct parse *p, const char *path, FILE *f)
{
	AUTO_FREE char *text = malloc(CONFIG_FILE_MAX_BYTES + 1);
	struct why inner = { { 0 } }, *why = p->why;
	json_error_t error;
	json_t *root;
	size_t len;
	int err;

	if (!text)
		return why_fail(why, ENOMEM, "out of memory");
	len = fread(text, 1, CONFIG_FILE_MAX_BYTES + 1, f);
	if (ferror(f))
		return why_fail(why, EINVAL, "cannot read the configuration file %s: %s", path,
				strerror(errno));
	if (len > CONFIG_FILE_MAX_BYTES)
		return why_fail(why, EINVAL, "%s: larger than 1 MiB, not a configuration file",
				path);
	if (len >= strlen(BYTE_ORDER_MARK) &&
	    !memcmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)))
		return why_fail(why, EINVAL,
				"%s begins with a byte order mark (BOM), which JSON does not "
				"allow: save the file as UTF-8 without BOM",
				path);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return why_fail(why, EINVAL, "%s:%d: not valid JSON: %s", path, error.line,
				error.text);
	p->why = &inner;
	p->where = path;
	if (json_is_object(root))
		err = read_object(p, "", root);
	else
		err = why_fail(&inner, EINVAL, "expected a JSON object");
	p->why = why;
	json_decref(root);
	return err ? why_fail(why, -err, "%s: %.400s", path, inner.text) : 0;
}

/* A named pipe without a writer, which may block for ever, is as an empty file. */
static FILE *open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *f = fd < 0 || fcntl(fd, F_SETFL, O_RDONLY) < 0 ? NULL : fdopen(fd, "r");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

static int read_file(struct parse *p, const char *path)
{
	AUTO_FCLOSE FILE *f = open_file(path);

	if (!f)
		return why_fail(p->why, EINVAL, "cannot read the configuration file %s: %s", path,
				strerror(errno));
	return read_stream(p, path, f);
}

int config_read_file(const struct option_table *tables, const char *path, struct why *why)
{
	struct parse p = { .tables = tables, .keys = tables, .origin = FROM_FILE, .why = why };

	return read_file(&p, path);
}

/* Ignored without permission to read: the user names the server then. */
static int read_default_file(struct parse *p)
{
	AUTO_FCLOSE FILE *f = default_path ? fopen(default_path, "re") : NULL;
	int err;

	if (!f)
		return 0;
	p->keys = default_keys ?: p->tables;
	err = read_stream(p, default_path, f);
	p->keys = p->tables;
	return err;
}

/* Number of argv words of a -c option here, 0: none; the file, NULL for `none`. */
static int file_words(int argc, char **argv, int i, const char **ret_path)
{
	const char *word = argv[i];
	int n = 1;

	*ret_path = NULL;
	if (!strcmp(word, "--no-config") || !strcmp(word, "--no_config"))
		return n;
	if (!strcmp(word, "-c") || !strcmp(word, "--config"))
		*ret_path = i + 1 < argc ? argv[i + n++] : "";
	else if (!strncmp(word, "--config=", 9))
		*ret_path = word + 9;
	else if (!strncmp(word, "-c", 2))
		*ret_path = word + 2;
	else
		return 0;
	if (!strcmp(*ret_path, "none"))
		*ret_path = NULL;
	return n;
}

/* Reads the file of -c before any flag is applied, otherwise the default file if present. */
static int read_files(struct parse *p, int argc, char **argv)
{
	bool named = false;
	int err = 0;

	p->origin = FROM_FILE;
	for (int i = 1, n; !err && i < argc && strcmp(argv[i], "--") != 0; i += n ?: 1) {
		const char *path;

		n = file_words(argc, argv, i, &path);
		if (n && path && !*path)
			err = why_fail(p->why, EINVAL, "%s: needs a file name", argv[i]);
		else if (n && path)
			err = read_file(p, path);
		named = named || n;
	}
	return err || named ? err : read_default_file(p);
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
			err = set_option(p, o, value);
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
	return set_option(p, o, value);
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
	return set_option(p, o, value);
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
	struct parse p = { .tables = tables, .keys = tables, .why = why };
	size_t capacity = n_words ? *n_words : 0, n = 0;
	bool flags = true;
	int err, skip;

	n_given = 0;
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return 1;
	}
	err = read_files(&p, argc, argv);
	if (!err)
		err = read_environment(&p);
	p.origin = FROM_FLAG;
	p.where = "flag";
	for (int i = 1; !err && i < argc; i++) {
		const char *path;

		skip = flags ? file_words(argc, argv, i, &path) : 0;
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
