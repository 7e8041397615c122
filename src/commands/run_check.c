// SPDX-License-Identifier: Apache-2.0
/* `underspan run --check`. See run_check.h. */
#include "commands/run_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/metrics.h"
#include "commands/database.h"
#include "pipeline/options.h"
#include "pipeline/spool/spool_directory.h"
#include "store/directory.h"
#include "store/engine_find.h"
#include "trackers/trackers.h"

static void print_server(const struct clickhouse_target *target)
{
	const struct clickhouse_endpoint *first = &target->endpoints[0];

	printf("rows        to %s, database %s, user %s, %s password\n",
	       clickhouse_config.clickhouse, first->database ?: "default", first->user ?: "default",
	       first->password ? "with a" : "without");
}

static int check_place(bool to_stdout, struct why *why)
{
	struct clickhouse_target target;
	const struct engine_choice choice = { clickhouse_config.libchdb,
					      clickhouse_config.store_program };
	struct engine_place engine;
	int err;

	if (to_stdout) {
		puts("rows        to stdout, as JSON lines");
		return 0;
	}
	if (clickhouse_config.store) {
		err = engine_find(&choice, &engine, why);
		if (!err)
			err = store_directory_check(clickhouse_config.store, why);
		if (err)
			return err;
		printf("rows        to an embedded store in %s%s%s\n", clickhouse_config.store,
		       engine.is_program ? ", by " : "", engine.is_program ? engine.path : "");
		return 0;
	}
	err = clickhouse_resolve(&clickhouse_config, &target, why);
	if (err)
		return err;
	print_server(&target);
	clickhouse_release(&target);
	return 0;
}

static void print_trackers(const struct string_list *names)
{
	printf("trackers   ");
	for (size_t i = 0; all_trackers[i]; i++) {
		if (tracker_is_wanted(names, all_trackers[i]))
			printf(" %s", all_trackers[i]->name);
	}
	putchar('\n');
}

int run_check(const struct option_table *tables, const struct agent_options *agent, bool to_stdout,
	      struct why *why)
{
	const char *spool = pipeline_limits.spool.directory;
	int err = trackers_check(&agent->trackers, why);

	if (!err)
		err = metrics_check(why);
	if (!err)
		err = check_place(to_stdout, why);
	if (!err && !to_stdout && spool)
		err = spool_directory_check(spool, why);
	if (err)
		return -EINVAL;
	if (!to_stdout)
		printf("spool       %s\n",
		       spool ?: "none: undelivered rows are kept in memory only");
	print_trackers(&agent->trackers);
	printf("processes   %s\n", agent->pids.n ? "those of --pid, and their descendants"
						 : "every Python of this host");
	config_print_given(tables);
	return 0;
}
