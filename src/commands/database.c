// SPDX-License-Identifier: Apache-2.0
/* Resolution of database options. See database.h. */
#include "commands/database.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "clickhouse/own_names.h"

enum { MAX_PASSWORD_BYTES = 4096 };

/* Beside CONFIG_DEFAULT_FILE: the credential file of the service's unit. */
static const char default_password_file[] = "/etc/underspan/clickhouse-password";

struct clickhouse_config clickhouse_config = {
	.clickhouse_connect_timeout_ns = 5 * NSEC_PER_SEC,
};

static const struct option options[] = {
	{ .key = "clickhouse",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse,
	  .arg = "URL[,URL]",
	  .help = "a ClickHouse server, as in http://127.0.0.1:8123; several: replicas of the "
		  "same tables, tried in turn when a server fails",
	  .reloadable = true,
	  .group = "database" },
	{ .key = "clickhouse_user",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_user,
	  .arg = "NAME",
	  .help = "user name at the server",
	  .otherwise = "default",
	  .reloadable = true },
	{ .key = "clickhouse_password_file",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_password_file,
	  .arg = "FILE",
	  .help = "holds the password; or set UNDERSPAN_CLICKHOUSE_PASSWORD, or give systemd's "
		  "credential clickhouse-password",
	  .reloadable = true },
	{ .key = "clickhouse_database",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_database,
	  .arg = "NAME",
	  .help = "where the tables are",
	  .otherwise = "default" },
	{ .key = "table_prefix",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.table_prefix,
	  .arg = "PREFIX",
	  .help = "before the names of underspan's tables and views, in all statements",
	  .otherwise = "none" },
	{ .key = "traces",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.traces,
	  .arg = "DATABASE.TABLE",
	  .help = "the table of spans, for the views of `schema --apply`",
	  .otherwise = "otel_traces" },
	{ .key = "clickhouse_ca_file",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_ca_file,
	  .arg = "FILE",
	  .help = "certificates to trust instead of the system's",
	  .reloadable = true },
	{ .key = "clickhouse_cert_file",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_cert_file,
	  .arg = "FILE",
	  .help = "client certificate (PEM), sent when the server requires a certificate",
	  .reloadable = true },
	{ .key = "clickhouse_key_file",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.clickhouse_key_file,
	  .arg = "FILE",
	  .help = "private key of the client certificate, if not in the same file",
	  .reloadable = true },
	{ .key = "clickhouse_connect_timeout",
	  .type = OPTION_SECONDS,
	  .target = &clickhouse_config.clickhouse_connect_timeout_ns,
	  .arg = "S",
	  .help = "limit for name lookup, connection and TLS together",
	  .max = 600 },
	{ .key = "clickhouse_stall_timeout",
	  .type = OPTION_SECONDS,
	  .target = &clickhouse_config.clickhouse_stall_timeout_ns,
	  .arg = "S",
	  .help = "cancel a request when no byte moves for this long",
	  .otherwise = "30s for rows, no limit for questions",
	  .max = 3600 },
	{ .key = "clickhouse_timeout",
	  .type = OPTION_SECONDS,
	  .target = &clickhouse_config.clickhouse_timeout_ns,
	  .arg = "S",
	  .help = "cancel a request after this long",
	  .otherwise = "5m for rows, no limit for questions",
	  .max = 86400 },
	{ .key = "store",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.store,
	  .arg = "DIR",
	  .help = "an embedded store instead of a server",
	  .group = "database" },
	{ .key = "libchdb",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.libchdb,
	  .arg = "FILE",
	  .help = "the embedded engine, if not in a usual place" },
	{ .key = "store_program",
	  .type = OPTION_STRING,
	  .target = &clickhouse_config.store_program,
	  .arg = "FILE",
	  .help = "an installed clickhouse program as the engine" },
};

const struct option_table clickhouse_options = { options, ARRAY_SIZE(options), "ClickHouse" };

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

/* systemd's LoadCredential=clickhouse-password:FILE. An empty file: no password. */
static bool find_credential(char *path, size_t size)
{
	const char *directory = getenv("CREDENTIALS_DIRECTORY");
	struct stat st;

	if (!directory || snprintf(path, size, "%s/clickhouse-password", directory) >= (int)size)
		return false;
	return stat(path, &st) == 0 && st.st_size > 0;
}

/*
 * Sources in order: the given file, systemd's credential, the environment; for the server of the
 * host's configuration also the password file beside the configuration.
 */
static int resolve_password(const struct clickhouse_config *config, char **ret_password,
			    struct why *why)
{
	const char *password = getenv("UNDERSPAN_CLICKHOUSE_PASSWORD");
	char path[4096];
	struct stat st;

	if (config->clickhouse_password_file)
		return read_password_file(config->clickhouse_password_file, ret_password, why);
	if (find_credential(path, sizeof(path)))
		return read_password_file(path, ret_password, why);
	if (password && *password)
		return copy(ret_password, password, why);
	if (config_from_default_file("clickhouse") && stat(default_password_file, &st) == 0 &&
	    st.st_size > 0)
		return read_password_file(default_password_file, ret_password, why);
	return 0;
}

/* The library would tell of a connection's failure, each time. */
static int check_readable(const char *key, const char *path, struct why *why)
{
	return !path || access(path, R_OK) == 0 ? 0
						: why_fail(why, EINVAL, "%s: cannot read %s: %s",
							   key, path, strerror(errno));
}

static int check_tls_files(const struct clickhouse_config *config, struct why *why)
{
	int err = check_readable("clickhouse_ca_file", config->clickhouse_ca_file, why);

	if (!err)
		err = check_readable("clickhouse_cert_file", config->clickhouse_cert_file, why);
	return err ? err : check_readable("clickhouse_key_file", config->clickhouse_key_file, why);
}

static int resolve_one(const struct clickhouse_config *config, const char *url,
		       struct clickhouse_endpoint *e, struct why *why)
{
	int err = clickhouse_check_url(url, why);

	if (!err)
		err = copy(&e->url, url, why);
	if (!err)
		err = copy(&e->user, config->clickhouse_user, why);
	if (!err)
		err = copy(&e->ca_file, config->clickhouse_ca_file, why);
	if (!err)
		err = copy(&e->cert_file, config->clickhouse_cert_file, why);
	if (!err)
		err = copy(&e->key_file, config->clickhouse_key_file, why);
	return err ? err : resolve_password(config, &e->password, why);
}

static int resolve_servers(const struct clickhouse_config *config, struct clickhouse_target *t,
			   struct why *why)
{
	AUTO_FREE char *urls = NULL;
	char *rest, *url;
	int err = check_tls_files(config, why);

	if (!err)
		err = copy(&urls, config->clickhouse, why);
	rest = urls;
	while (!err && (url = strsep(&rest, ","))) {
		if (t->n_endpoints == CLICKHOUSE_ENDPOINTS_MAX)
			return why_fail(why, EINVAL, "clickhouse: over %d servers",
					CLICKHOUSE_ENDPOINTS_MAX);
		err = resolve_one(config, url, &t->endpoints[t->n_endpoints++], why);
	}
	return err;
}

static int resolve_store(const struct clickhouse_config *config, struct clickhouse_target *t,
			 struct why *why)
{
	struct store_spawn_options o = { .path = config->store,
					 .make = config->writes,
					 .stays = config->stays,
					 .engine = { config->libchdb, config->store_program } };
	struct clickhouse_endpoint *e = &t->endpoints[t->n_endpoints++];
	int err = store_spawn(&o, &t->store, why);

	if (!err)
		err = copy(&e->url, t->store.url, why);
	if (!err)
		err = copy(&e->unix_socket, t->store.socket, why);
	if (!err)
		err = copy(&e->user, t->store.user, why);
	if (!err)
		err = copy(&e->password, t->store.password, why);
	return err;
}

int clickhouse_resolve(const struct clickhouse_config *config, struct clickhouse_target *ret_target,
		       struct why *why)
{
	struct clickhouse_target t = { .store = { .pidfd = -1, .directory = -1 } };
	int err = own_names_check(config->table_prefix, why);

	if (err)
		return err;
	if (config->clickhouse && config->store)
		return why_fail(why, EINVAL,
				"clickhouse (%s) and store (%s) exclude each other: give only one",
				config_where("clickhouse"), config_where("store"));
	if (!config->clickhouse && !config->store)
		return why_fail(
			why, EINVAL,
			"no database given: use --clickhouse=URL for a server, or --store=DIR "
			"for the embedded store");
	err = config->clickhouse ? resolve_servers(config, &t, why)
				 : resolve_store(config, &t, why);
	for (size_t i = 0; !err && i < t.n_endpoints; i++) {
		struct clickhouse_endpoint *e = &t.endpoints[i];

		e->connect_timeout_ns = config->clickhouse_connect_timeout_ns;
		e->stall_timeout_ns = config->clickhouse_stall_timeout_ns;
		e->timeout_ns = config->clickhouse_timeout_ns;
		e->patient = !config->writes;
		err = copy(&e->database, config->clickhouse_database, why);
		if (!err)
			err = copy(&e->table_prefix, config->table_prefix, why);
	}
	if (err) {
		clickhouse_release(&t);
		return err;
	}
	*ret_target = t;
	return 0;
}

void clickhouse_release(struct clickhouse_target *t)
{
	for (size_t i = 0; i < t->n_endpoints; i++)
		clickhouse_endpoint_free(&t->endpoints[i]);
	store_stop(&t->store);
}
