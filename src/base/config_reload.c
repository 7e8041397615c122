// SPDX-License-Identifier: Apache-2.0
/*
 * Reload of the configuration at run time: file and flags are parsed into a second set of targets,
 * initialized with the defaults, and compared with the values in use. A bad file changes nothing; a
 * removed key returns to its default.
 */
#include "base/config.h"

#include <string.h>

union value {
	bool boolean;
	uint64_t number;
	double real;
	int choice;
	char *string;
	struct string_list list;
	struct pid_list pids;
};

struct shadow {
	struct option_table *tables; /* copies of the originals with targets in `values` */
	struct option *options;
	union value *values;
	size_t n;
};

static union value *defaults;
static size_t n_defaults;

static size_t size_of(const struct option *o)
{
	switch (o->type) {
	case OPTION_BOOL:
		return sizeof(bool);
	case OPTION_UINT:
	case OPTION_SECONDS:
		return sizeof(uint64_t);
	case OPTION_NUMBER:
		return sizeof(double);
	case OPTION_CHOICE:
		return sizeof(int);
	case OPTION_STRING:
		return sizeof(char *);
	case OPTION_LIST:
		return sizeof(struct string_list);
	case OPTION_PIDS:
		return sizeof(struct pid_list);
	}
	return 0;
}

static size_t count(const struct option_table *tables, size_t *ret_n_tables)
{
	size_t n = 0, n_tables = 0;

	for (; tables[n_tables].options; n_tables++)
		n += tables[n_tables].n;
	*ret_n_tables = n_tables;
	return n;
}

int config_remember_defaults(const struct option_table *tables)
{
	size_t n_tables, i = 0, n = count(tables, &n_tables);

	free(defaults);
	defaults = calloc(n + 1, sizeof(*defaults));
	n_defaults = defaults ? n : 0;
	if (!defaults)
		return -ENOMEM;
	for (; tables->options; tables++) {
		for (size_t k = 0; k < tables->n; k++, i++) {
			const struct option *o = &tables->options[k];

			/* heap values are empty by default */
			if (size_of(o) <= sizeof(uint64_t) && o->type != OPTION_STRING)
				memcpy(&defaults[i], o->target, size_of(o));
		}
	}
	return 0;
}

void config_forget_defaults(void)
{
	free(defaults);
	defaults = NULL;
	n_defaults = 0;
}

static void free_shadow(struct shadow *s)
{
	if (s->tables)
		config_free(s->tables);
	free(s->tables);
	free(s->options);
	free(s->values);
}

static int make_shadow(const struct option_table *tables, struct shadow *s, struct why *why)
{
	size_t n_tables, i = 0, n = count(tables, &n_tables);

	if (!defaults || n != n_defaults)
		return why_fail(why, EINVAL, "the options' defaults are not known any more");
	*s = (struct shadow){ .tables = calloc(n_tables + 1, sizeof(*s->tables)),
			      .options = calloc(n + 1, sizeof(*s->options)),
			      .values = calloc(n + 1, sizeof(*s->values)),
			      .n = n };
	if (!s->tables || !s->options || !s->values) {
		free(s->tables);
		s->tables = NULL;
		free_shadow(s);
		return why_fail(why, ENOMEM, "out of memory");
	}
	memcpy(s->values, defaults, n * sizeof(*s->values));
	for (size_t t = 0; t < n_tables; t++) {
		s->tables[t] = (struct option_table){ &s->options[i], tables[t].n };
		for (size_t k = 0; k < tables[t].n; k++, i++) {
			s->options[i] = tables[t].options[k];
			s->options[i].target = &s->values[i];
		}
	}
	return 0;
}

static bool same_list(const struct string_list *a, const struct string_list *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = !strcmp(a->items[i], b->items[i]);
	return same;
}

static bool same(const struct option *o, const union value *other)
{
	const struct pid_list *pids = o->target;
	const char *string;

	switch (o->type) {
	case OPTION_STRING:
		string = *(char **)o->target;
		return string && other->string ? !strcmp(string, other->string)
					       : string == other->string;
	case OPTION_LIST:
		return same_list(o->target, &other->list);
	case OPTION_PIDS:
		return pids->n == other->pids.n &&
		       (!pids->n ||
			!memcmp(pids->items, other->pids.items, pids->n * sizeof(pids->items[0])));
	default:
		return !memcmp(o->target, other, size_of(o));
	}
}

/* Swaps the new value with the value in use; the shadow owns the old value. */
static void swap(const struct option *o, union value *other)
{
	union value old = { 0 };

	memcpy(&old, o->target, size_of(o));
	memcpy(o->target, other, size_of(o));
	*other = old;
}

static void add_key(struct why *to, const char *key)
{
	size_t len = strlen(to->text);

	snprintf(to->text + len, sizeof(to->text) - len, "%s%s", len ? ", " : "", key);
}

/* A second call undoes the first. */
static void exchange_values(const struct option_table *tables, const struct shadow *s,
			    struct why *changed, struct why *needs_restart)
{
	size_t i = 0;

	changed->text[0] = needs_restart->text[0] = '\0';
	for (; tables->options; tables++) {
		for (size_t k = 0; k < tables->n; k++, i++) {
			const struct option *o = &tables->options[k];

			if (same(o, &s->values[i]))
				continue;
			add_key(o->reloadable ? changed : needs_restart, o->key);
			if (o->reloadable)
				swap(o, &s->values[i]);
		}
	}
}

int config_reload(const struct option_table *tables, int argc, char **argv,
		  int (*apply)(struct why *why), struct why *changed, struct why *needs_restart,
		  struct why *why)
{
	struct shadow s;
	int err = make_shadow(tables, &s, why);

	if (err)
		return err;
	err = config_parse(s.tables, argc, argv, NULL, NULL, why);
	if (!err) {
		exchange_values(tables, &s, changed, needs_restart);
		err = apply(why);
		if (err)
			exchange_values(tables, &s, changed, needs_restart);
	}
	free_shadow(&s);
	return err;
}
