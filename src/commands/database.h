/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options shared by all commands that talk to ClickHouse, and their resolution: a server at a URL,
 * a store already serving a directory, or a store started for the duration of the command.
 */
#ifndef UNDERSPAN_COMMANDS_DATABASE_H
#define UNDERSPAN_COMMANDS_DATABASE_H

#include "clickhouse/client.h"
#include "base/config.h"
#include "store/spawn.h"
#include "base/util.h"

struct clickhouse_config {
	char *clickhouse;			  /* URL, or several, comma-separated */
	char *clickhouse_user;			  /* NULL: "default" */
	char *clickhouse_password_file;		  /* NULL: see resolve_password() */
	char *clickhouse_database, *table_prefix; /* NULL: "default" */
	char *clickhouse_ca_file;		  /* NULL: the system's certificates */
	char *clickhouse_cert_file;		  /* NULL: no client certificate */
	char *clickhouse_key_file;		  /* NULL: in clickhouse_cert_file */
	uint64_t clickhouse_connect_timeout_ns, clickhouse_stall_timeout_ns, clickhouse_timeout_ns;
	char *traces; /* TABLE or DATABASE.TABLE of the spans; NULL: unchanged, or otel_traces */
	char *store;  /* directory of an embedded store */
	char *libchdb, *store_program; /* NULL: search, see store/engine_find.h */
	bool stays;		       /* not an option: writes for hours, see store/spawn.h */
	bool writes; /* not an option: the command writes, so a missing store is created */
};

/* Filled through clickhouse_options, which a command adds to its array of option tables. */
extern struct clickhouse_config clickhouse_config;
extern const struct option_table clickhouse_options;

struct clickhouse_target {
	struct clickhouse_endpoint
		endpoints[CLICKHOUSE_ENDPOINTS_MAX]; /* the first is used for queries */
	size_t n_endpoints;
	struct store_child store; /* pid 0: no store was started */
};

/*
 * -EINVAL: bad options (neither or both of clickhouse and store, a password in the URL, ...), exit
 * code 2; other errors: server not reached or store not started, exit code 1.
 */
int clickhouse_resolve(const struct clickhouse_config *config, struct clickhouse_target *ret_target,
		       struct why *why);

/* Stops a started store; wipes the password. */
void clickhouse_release(struct clickhouse_target *target);

#endif
