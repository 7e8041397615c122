// SPDX-License-Identifier: Apache-2.0
/* Environment variables of options, and warnings for unknown variables. See config.h. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/config_value.h"
#include "base/log.h"
#include "base/nearest.h"

char *config_variable(const char *key, char *buf, size_t size)
{
	int n = snprintf(buf, size, "UNDERSPAN_");

	for (; *key && (size_t)n + 1 < size; key++)
		buf[n++] = (char)(*key == '.' ? '_' : toupper((unsigned char)*key));
	buf[n] = 0;
	return buf;
}

static bool ends_like_port(const char *name)
{
	const char *port = strstr(name, "PORT");

	return port && (!port[4] || (port[4] == '_' && isdigit((unsigned char)port[5])));
}

/* Variables that are not options: the password, test variables, variables of a
 * Kubernetes Service. */
static bool is_no_option(const char *name)
{
	static const char *const others[] = { "CLICKHOUSE_PASSWORD", "E2E",   "PATIENCE", "SANDBOX",
					      "SANITIZER",	     "STORM", NULL };

	for (size_t i = 0; others[i]; i++) {
		size_t len = strlen(others[i]);

		if (!strncmp(name, others[i], len) && (!name[len] || (name[len] == '_' && i > 0)))
			return true;
	}
	return strstr(name, "SERVICE_HOST") || strstr(name, "SERVICE_PORT") || ends_like_port(name);
}

struct variable {
	const char *name; /* without UNDERSPAN_ */
	bool known;
	struct nearest nearest;
	char names[256][64]; /* all options; `nearest` points to one of them */
	size_t n_names;
};

static void try_variable(const struct option *o, void *context)
{
	struct variable *v = context;
	char name[128];

	if (o->flag_only || v->n_names == ARRAY_SIZE(v->names))
		return;
	config_variable(o->key, name, sizeof(name));
	snprintf(v->names[v->n_names], sizeof(v->names[0]), "%.63s", name + strlen("UNDERSPAN_"));
	v->known = v->known || !strcmp(v->names[v->n_names], v->name);
	nearest_try(&v->nearest, v->names[v->n_names++]);
}

/* Names that are not near enough; NULL: none. */
static const char *meant(const char *name)
{
	static const char *const names[][2] = {
		{ "PASSWORD", "; did you mean UNDERSPAN_CLICKHOUSE_PASSWORD?" },
		{ "USER", "; did you mean UNDERSPAN_CLICKHOUSE_USER?" },
		{ "DATABASE", "; did you mean UNDERSPAN_CLICKHOUSE_DATABASE?" },
		{ "URL", "; did you mean UNDERSPAN_CLICKHOUSE?" },
		{ "CLICKHOUSE_URL", "; did you mean UNDERSPAN_CLICKHOUSE?" },
		{ "DEBUG", ": UNDERSPAN_LOG_LEVEL=debug" },
		{ "VERBOSE", ": UNDERSPAN_LOG_LEVEL=debug" },
		{ "CONFIG", ": `-c FILE` names the file" },
		{ "CONFIG_FILE", ": `-c FILE` names the file" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(names[i][0], name))
			return names[i][1];
	}
	return NULL;
}

void config_check_environment(const struct option_table *all)
{
	static const char prefix[] = "UNDERSPAN_";

	for (char **e = environ; *e; e++) {
		static struct variable v;
		char name[64], hint[128];

		if (strncmp(*e, prefix, sizeof(prefix) - 1) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e + sizeof(prefix) - 1, "="),
			 *e + sizeof(prefix) - 1);
		if (is_no_option(name))
			continue;
		v = (struct variable){ .name = name };
		nearest_begin(&v.nearest, name, strlen(name));
		config_for_each(all, try_variable, &v);
		if (!v.known)
			log_warn("the environment variable %s%s is no option%s", prefix, name,
				 meant(name)
					 ?: nearest_hint(
						    &v.nearest, prefix,
						    ": see `underspan help config` for the names",
						    hint, sizeof(hint)));
	}
}
