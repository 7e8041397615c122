/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that every command talking to ClickHouse shares, and what they lead to: a server at
 * a URL, a store that already serves a directory, or one started for as long as the command runs.
 */
#ifndef UNDERSPAN_CLICKHOUSE_TARGET_H
#define UNDERSPAN_CLICKHOUSE_TARGET_H

#include "clickhouse/client.h"
#include "config.h"
#include "store/spawn.h"
#include "util.h"

struct clickhouse_config {
	char *clickhouse;		/* URL, or several with commas between */
	char *clickhouse_user;		/* NULL: "default" */
	char *clickhouse_password_file; /* NULL: $UNDERSPAN_CLICKHOUSE_PASSWORD, or none */
	char *clickhouse_database;	/* NULL: "default" */
	char *clickhouse_ca_file;	/* NULL: the system's certificates */
	char *clickhouse_cert_file;	/* NULL: the server wants none of us */
	char *clickhouse_key_file;	/* NULL: in clickhouse_cert_file */
	uint64_t clickhouse_connect_timeout_ns, clickhouse_stall_timeout_ns, clickhouse_timeout_ns;
	char *store;   /* directory of an embedded store */
	char *libchdb; /* NULL: searched, see store/engine.h */
};

/* Filled through clickhouse_options; put the table into the command's array of tables. */
extern struct clickhouse_config clickhouse_config;
extern const struct option_table clickhouse_options;

struct clickhouse_target {
	struct clickhouse_endpoint endpoints[CLICKHOUSE_ENDPOINTS_MAX]; /* the first: for queries */
	size_t n_endpoints;
	struct store_child store; /* pid 0 when nothing was started */
};

/*
 * -EINVAL for bad options (neither or both of clickhouse and store, a password in the URL, ...):
 * exit code 2; other errors are failures to reach or start it: exit code 1.
 */
int clickhouse_resolve(const struct clickhouse_config *config, struct clickhouse_target *ret_target,
		       struct why *why);

/* Stops the store if one was started; wipes the password. */
void clickhouse_release(struct clickhouse_target *target);

#endif
