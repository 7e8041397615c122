// SPDX-License-Identifier: Apache-2.0
/* From options to a ClickHouse that can be asked. See target.h. */
#include "clickhouse/target.h"

#include <fcntl.h>
#include <string.h>

enum { MAX_PASSWORD_BYTES = 4096 };

struct clickhouse_config clickhouse_config;

static const struct option options[] = {
	{ .key = "clickhouse",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse,
	  .arg = "URL",
	  .help = "a ClickHouse server, as in http://127.0.0.1:8123" },
	{ .key = "clickhouse_user",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_user,
	  .arg = "NAME",
	  .help = "who to be there (default)" },
	{ .key = "clickhouse_password_file",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_password_file,
	  .arg = "FILE",
	  .help = "holds the password; or set UNDERSPAN_CLICKHOUSE_PASSWORD" },
	{ .key = "clickhouse_database",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_database,
	  .arg = "NAME",
	  .help = "where the tables are (default)" },
	{ .key = "clickhouse_ca_file",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_ca_file,
	  .arg = "FILE",
	  .help = "certificates to trust instead of the system's" },
	{ .key = "store",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.store,
	  .arg = "DIR",
	  .help = "an embedded store instead of a server" },
	{ .key = "libchdb",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.libchdb,
	  .arg = "FILE",
	  .help = "the embedded engine, if not in a usual place" },
};

const struct option_table clickhouse_options = { options, ARRAY_SIZE(options) };

static int read_password_file(const char *path, char **ret_password, struct why *why)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[MAX_PASSWORD_BYTES];
	int err = 0;
	ssize_t n;

	if (fd < 0)
		return why_fail(why, errno, "clickhouse_password_file: cannot read %s: %s", path,
				strerror(errno));
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return why_fail(why, errno, "clickhouse_password_file: cannot read %s: %s", path,
				strerror(errno));
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (!*text)
		err = why_fail(why, EINVAL,
			       "clickhouse_password_file: the first line of %s is empty", path);
	else if (!(*ret_password = strdup(text)))
		err = why_fail(why, ENOMEM, "out of memory");
	explicit_bzero(text, sizeof(text));
	return err;
}

static int copy(char **ret, const char *s, struct why *why)
{
	if (!s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : why_fail(why, ENOMEM, "out of memory");
}

static int resolve_server(const struct clickhouse_config *config, struct clickhouse_endpoint *e,
			  struct why *why)
{
	const char *password = getenv("UNDERSPAN_CLICKHOUSE_PASSWORD");
	int err = clickhouse_check_url(config->clickhouse, why);

	if (!err)
		err = copy(&e->url, config->clickhouse, why);
	if (!err)
		err = copy(&e->user, config->clickhouse_user, why);
	if (!err)
		err = copy(&e->ca_file, config->clickhouse_ca_file, why);
	if (err)
		return err;
	if (config->clickhouse_password_file)
		return read_password_file(config->clickhouse_password_file, &e->password, why);
	return password && *password ? copy(&e->password, password, why) : 0;
}

static int resolve_store(const struct clickhouse_config *config, struct clickhouse_target *t,
			 struct why *why)
{
	struct store_spawn_options o = { .path = config->store, .libchdb = config->libchdb };
	int err = store_spawn(&o, &t->store, why);

	if (!err)
		err = copy(&t->endpoint.url, t->store.url, why);
	if (!err)
		err = copy(&t->endpoint.user, t->store.user, why);
	if (!err)
		err = copy(&t->endpoint.password, t->store.password, why);
	return err;
}

int clickhouse_resolve(const struct clickhouse_config *config, struct clickhouse_target *ret_target,
		       struct why *why)
{
	struct clickhouse_target t = { .store = { .pidfd = -1 } };
	int err;

	if (config->clickhouse && config->store)
		return why_fail(why, EINVAL, "clickhouse and store: name one of them, not both");
	if (!config->clickhouse && !config->store)
		return why_fail(why, EINVAL,
				"which ClickHouse? --clickhouse=URL for a server, --store=DIR for "
				"an embedded one");
	err = config->clickhouse ? resolve_server(config, &t.endpoint, why)
				 : resolve_store(config, &t, why);
	if (!err)
		err = copy(&t.endpoint.database, config->clickhouse_database, why);
	if (err) {
		clickhouse_release(&t);
		return err;
	}
	*ret_target = t;
	return 0;
}

void clickhouse_release(struct clickhouse_target *t)
{
	clickhouse_endpoint_free(&t->endpoint);
	store_stop(&t->store);
}
