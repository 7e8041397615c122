// SPDX-License-Identifier: Apache-2.0
/* Options in a JSON file. See config_parse.h. */
#include "base/config_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config_value.h"

enum { CONFIG_FILE_MAX_BYTES = 1 << 20 };

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
		return err ? err : config_set_option(p, o, text);
	}
	if (o->type != OPTION_LIST && o->type != OPTION_PIDS)
		return why_fail(p->why, EINVAL, "%s: expected a single value, not an array%s",
				o->key,
				o->arg && strstr(o->arg, "[,")
					? ": write several as one text, with commas between them"
					: "");
	config_prepare(p, o);
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
			config_hint(p->known ?: p->tables, key, strlen(key), "",
				    "; --help lists the keys", hint, sizeof(hint)));
}

/* Whether a file may have the key, for a command that has it in files. */
static bool is_key_of_files(const struct option_table *known, const char *key)
{
	for (const struct option_table *t = known; t && t->options; t++) {
		for (size_t i = 0; i < t->n; i++) {
			if (!t->options[i].flag_only && !strcmp(t->options[i].key, key))
				return true;
		}
	}
	return false;
}

/* `object`: the file's whole, or an object in it, whose keys have the prefix. */
static int read_object(struct parse *p, const json_t *whole, const char *prefix, json_t *object)
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
		if (*prefix && json_object_get(whole, key))
			return why_fail(p->why, EINVAL,
					"%s: given twice, with a dot and in an object", key);
		own = config_find_option(p->keys, key, strlen(key));
		any = own ?: config_find_option(p->tables, key, strlen(key));
		any = any ?: config_find_option(p->known, key, strlen(key));
		if (any && any->flag_only && is_key_of_files(p->known, any->key)) {
			continue; /* another command's, of the same name */
		} else if (any && any->flag_only) {
			err = why_fail(p->why, EINVAL, "%s: can be given as a flag only", any->key);
		} else if (own) {
			err = set_from_json(p, own, v);
		} else if (!any && json_is_object(v) && !*prefix) {
			char nested[256];

			snprintf(nested, sizeof(nested), "%.200s.", name);
			err = read_object(p, whole, nested, v);
		} else if (!any) {
			err = refuse_key(p, key);
		} /* else another command's */
		if (err)
			return err;
	}
	return 0;
}

static const char BYTE_ORDER_MARK[] = "\xef\xbb\xbf";

/* What most errors come from. */
static const char *json_hint(const json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_end_of_input_expected:
		return "; the file is one object, from { to }";
	case json_error_duplicate_key:
		return "; several values of one key are one text, with commas";
	default:
		break;
	}
	if (strstr(error->text, "near '/'") || strstr(error->text, "near '#'"))
		return "; JSON has no comments";
	if (strstr(error->text, "near '}'") || strstr(error->text, "near ']'"))
		return "; is there a comma before it, after the last value?";
	if (strstr(error->text, "'[' or '{' expected"))
		return "; the file is one JSON object, as in { \"clickhouse\": "
		       "\"http://127.0.0.1:8123\" }";
	return "";
}

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
		return why_fail(why, EINVAL, "%s:%d: not valid JSON: %s%s", path, error.line,
				error.text, json_hint(&error));
	p->why = &inner;
	p->where = path;
	if (json_is_object(root))
		err = read_object(p, root, "", root);
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

int config_file_read(struct parse *p, const char *path)
{
	AUTO_FCLOSE FILE *f = open_file(path);

	if (!f)
		return why_fail(p->why, EINVAL, "cannot read the configuration file %s: %s", path,
				strerror(errno));
	return read_stream(p, path, f);
}

/* Ignored without permission to read: the user names the server then. */
static int read_default_file(struct parse *p)
{
	AUTO_FCLOSE FILE *f = p->default_path ? fopen(p->default_path, "re") : NULL;
	int err;

	if (!f)
		return 0;
	p->keys = p->default_keys;
	err = read_stream(p, p->default_path, f);
	p->keys = p->tables;
	return err;
}

int config_file_words(int argc, char **argv, int i, const char **ret_path)
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

int config_files_read(struct parse *p, int argc, char **argv)
{
	bool named = false;
	int err = 0;

	p->origin = FROM_FILE;
	for (int i = 1, n; !err && i < argc && strcmp(argv[i], "--") != 0; i += n ?: 1) {
		const char *path;

		n = config_file_words(argc, argv, i, &path);
		if (n && path && !*path)
			err = why_fail(p->why, EINVAL, "%s: needs a file name", argv[i]);
		else if (n && path)
			err = config_file_read(p, path);
		named = named || n;
	}
	return err || named ? err : read_default_file(p);
}
