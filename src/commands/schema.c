// SPDX-License-Identifier: Apache-2.0
/* `underspan schema`: prints the DDL of sql/; --apply upgrades a database, --check compares. */
#include <stdio.h>

#include "clickhouse/ddl_places.h"
#include "clickhouse/own_names.h"
#include "clickhouse/schema.h"
#include "commands/database.h"
#include "commands/commands.h"
#include "base/config.h"
#include "base/log.h"
#include "base/util.h"

static char *cluster;
static bool apply, check;
static uint64_t agents;

static const struct option options[] = {
	{ .key = "cluster",
	  .type = OPTION_STRING,
	  .target = &cluster,
	  .arg = "NAME",
	  .help = "for a cluster: replicated local tables, Distributed ones in front" },
	{ .key = "apply",
	  .type = OPTION_BOOL,
	  .target = &apply,
	  .help = "create missing tables and views, update existing ones",
	  .flag_only = true },
	{ .key = "check",
	  .type = OPTION_BOOL,
	  .target = &check,
	  .help = "print the changes --apply would make; exit code 0: none, 1: some",
	  .flag_only = true },
	{ .key = "engine",
	  .type = OPTION_CHOICE,
	  .target = &ddl_places.engine,
	  .choices = ddl_engine_names,
	  .arg = "ENGINE",
	  .help = "of new tables: MergeTree, also on a cluster whose shards have one server each; "
		  "ReplicatedMergeTree, in a database of engine Replicated without --cluster; "
		  "SharedMergeTree",
	  .otherwise = "MergeTree; with --cluster ReplicatedMergeTree",
	  .flag_only = true },
	{ .key = "keep",
	  .type = OPTION_SECONDS,
	  .target = &ddl_places.keep_ns,
	  .arg = "S",
	  .help = "new tables keep rows this long (TTL); those that exist keep their TTL",
	  .otherwise = "7d",
	  .min = 3600,
	  .flag_only = true },
	{ .key = "storage_policy",
	  .type = OPTION_STRING,
	  .target = &ddl_places.storage_policy,
	  .arg = "NAME",
	  .help = "storage policy of new tables",
	  .otherwise = "the server's",
	  .flag_only = true },
	{ .key = "replica_path",
	  .type = OPTION_STRING,
	  .target = &ddl_places.replica_path,
	  .arg = "PATH",
	  .help = "path in Keeper of new tables on a cluster",
	  .otherwise = "/clickhouse/tables/{shard}/{database}/{table}",
	  .flag_only = true },
	{ .key = "agents",
	  .type = OPTION_UINT,
	  .target = &agents,
	  .arg = "N",
	  .help = "with --apply or --check: the number of agents that write to the tables; sets "
		  "the deduplication windows",
	  .otherwise = "as many as wrote in the last ten minutes",
	  .max = 1000000,
	  .flag_only = true },
};
const struct option_table schema_options = { options, ARRAY_SIZE(options) };

/* *ret_same: false only if --check found a difference. */
static int ask_server(bool *ret_same, struct why *why)
{
	const struct schema_request request = {
		.cluster = cluster,
		.traces = clickhouse_config.traces,
		.agents = agents,
	};
	struct clickhouse_target target;
	int err;

	clickhouse_config.writes = apply;
	err = clickhouse_resolve(&clickhouse_config, &target, why);
	if (err)
		return err;
	target.endpoints[0].patient = true; /* a statement on a cluster is silent for long */
	err = check ? clickhouse_schema_check(&target.endpoints[0], &request, ret_same, why)
		    : clickhouse_schema_apply(&target.endpoints[0], &request, why);
	clickhouse_release(&target);
	return err;
}

int command_schema(int argc, char **argv)
{
	const struct option_table tables[] = { schema_options, clickhouse_options, { 0 } };
	struct why why = { { 0 } };
	bool same = true;
	int err = config_parse(tables, argc, argv, NULL, NULL, &why);

	if (err == 1) {
		puts("usage: underspan schema [--cluster=NAME]\n"
		     "       underspan schema --apply | --check [--agents=N]\n"
		     "                        (--clickhouse=URL | --store=DIR)\n\n"
		     "Prints the DDL of the tables and views; updates a database; or prints\n"
		     "the differences.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = ddl_places_check(cluster, &why);
	if (!err && apply && check)
		err = why_fail(&why, EINVAL, "--apply or --check, not both");
	if (!err && agents && !apply && !check)
		err = why_fail(&why, EINVAL, "agents: only with --apply or --check");
	if (!err)
		err = own_names_check(clickhouse_config.table_prefix, &why);
	ddl_places.database = clickhouse_config.clickhouse_database;
	if (!err)
		err = apply || check
			      ? ask_server(&same, &why)
			      : clickhouse_schema_print(clickhouse_config.clickhouse_database,
							cluster, clickhouse_config.traces,
							clickhouse_config.table_prefix, &why);
	if (err)
		log_error("%s", why.text);
	config_free(tables);
	return err == -EINVAL ? EXIT_USAGE : err || !same ? EXIT_FAILED : EXIT_DONE;
}
