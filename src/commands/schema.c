// SPDX-License-Identifier: Apache-2.0
/* `underspan schema`: the DDL of sql/, printed, or created with --apply. */
#include <stdio.h>

#include "clickhouse/schema.h"
#include "clickhouse/target.h"
#include "commands/commands.h"
#include "config.h"
#include "log.h"
#include "util.h"

static char *cluster;
static bool apply;

static const struct option options[] = {
	{ .key = "cluster",
	  .type = OPTION_STRING,
	  .target = &cluster,
	  .arg = "NAME",
	  .help = "for a cluster: replicated local tables, Distributed ones in front" },
	{ .key = "apply",
	  .type = OPTION_BOOL,
	  .target = &apply,
	  .help = "create what is missing instead of printing it" },
};

static int apply_schema(struct why *why)
{
	struct clickhouse_target target;
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = clickhouse_schema_apply(&target.endpoints[0], cluster, false, why);
	clickhouse_release(&target);
	return err;
}

int command_schema(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) },
					       clickhouse_options,
					       { 0 } };
	struct why why = { { 0 } };
	int err = config_parse(tables, argc, argv, NULL, NULL, &why);

	if (err == 1) {
		puts("usage: underspan schema [--cluster=NAME] [--apply (--clickhouse=URL | "
		     "--store=DIR)]\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = apply ? apply_schema(&why)
			    : clickhouse_schema_print(clickhouse_config.clickhouse_database,
						      cluster, &why);
	if (err)
		log_error("%s", why.text);
	config_free(tables);
	return err == -EINVAL ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_DONE;
}
