// SPDX-License-Identifier: Apache-2.0
/* What operators choose about new tables. See ddl_places.h. */
#include "clickhouse/ddl_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct ddl_places ddl_places;

const char *const ddl_engine_names[] = { "auto", "MergeTree", "ReplicatedMergeTree",
					 "SharedMergeTree", NULL };

const char *ddl_engine_prefix(const char *cluster)
{
	switch (ddl_places.engine) {
	case DDL_ENGINE_REPLICATED:
		return "Replicated";
	case DDL_ENGINE_SHARED:
		return "Shared";
	case DDL_ENGINE_PLAIN:
		return "";
	default:
		return cluster ? "Replicated" : "";
	}
}

static bool stays_in_quotes(const char *s)
{
	size_t n = strspn(s,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/{}");

	return n > 0 && n < 256 && !s[n];
}

int ddl_places_check(const char *cluster, struct why *why)
{
	const char *path = ddl_places.replica_path, *policy = ddl_places.storage_policy;

	bool with_path = cluster && !strcmp(ddl_engine_prefix(cluster), "Replicated");

	if (path && !with_path)
		return why_fail(why, EINVAL,
				"replica_path: only replicated tables of a cluster have one: add "
				"--cluster=NAME, or leave the path out");
	if (path && (!stays_in_quotes(path) || *path != '/'))
		return why_fail(why, EINVAL,
				"replica_path: '%.100s' is no path in Keeper, such as "
				"/clickhouse/{shard}/{database}/{table}",
				path);
	if (path && !strstr(path, "{table}") && !strstr(path, "{uuid}"))
		return why_fail(why, EINVAL,
				"replica_path: without {table} or {uuid} all tables would have the "
				"path '%.100s'",
				path);
	if (policy && !stays_in_quotes(policy))
		return why_fail(why, EINVAL,
				"storage_policy: '%.100s' is no policy's name: letters, digits and "
				"_.-/{}, as in system.storage_policies",
				policy);
	if (ddl_places.keep_ns % NSEC_PER_SEC)
		return why_fail(why, EINVAL, "keep: use whole seconds");
	return 0;
}

/* Replaces the first `old`, if any. */
static int replace(char **text, const char *old, const char *new, struct why *why)
{
	char *at = strstr(*text, old), *out;

	if (!at)
		return 0;
	if (asprintf(&out, "%.*s%s%s", (int)(at - *text), *text, new, at + strlen(old)) < 0)
		return why_fail(why, ENOMEM, "out of memory");
	free(*text);
	*text = out;
	return 0;
}

/*
 * Replicas remember INSERTs by number and by age. Both are set explicitly, since defaults changed
 * between versions and a spool may be delivered after days.
 */
static int put_windows(char **statement, struct why *why)
{
	return replace(statement, "non_replicated_deduplication_window = 10000",
		       "replicated_deduplication_window = 10000, "
		       "replicated_deduplication_window_seconds = 604800, "
		       "replicated_deduplication_window_for_async_inserts = 10000, "
		       "replicated_deduplication_window_seconds_for_async_inserts = 604800",
		       why);
}

char *ddl_path_over_shards(const char *table)
{
	static const char shard[] = "{shard}";
	const char *path = ddl_places.replica_path;
	char *out = NULL;
	struct why why;

	if (!path)
		return asprintf(&out, "/clickhouse/tables/{database}/%s", table) < 0 ? NULL : out;
	out = strdup(path);
	while (out && strstr(out, shard)) {
		if (replace(&out, shard, "all", &why)) {
			free(out);
			return NULL;
		}
	}
	return out;
}

int ddl_places_put(char **statement, const char *cluster, struct why *why)
{
	const char *engine = ddl_engine_prefix(cluster);
	static const char settings[] = "SETTINGS ttl_only_drop_parts";
	uint64_t seconds = ddl_places.keep_ns / NSEC_PER_SEC;
	bool days = seconds % 86400 == 0;
	char text[400];
	int err = 0;

	if (seconds) {
		snprintf(text, sizeof(text), "INTERVAL %llu %s",
			 (unsigned long long)(days ? seconds / 86400 : seconds),
			 days ? "DAY" : "SECOND");
		err = replace(statement, "INTERVAL 7 DAY", text, why);
	}
	if (!err && ddl_places.storage_policy) {
		snprintf(text, sizeof(text), "SETTINGS storage_policy = '%s', %s",
			 ddl_places.storage_policy, settings + strlen("SETTINGS "));
		err = replace(statement, settings, text, why);
	}
	if (!err && *engine)
		err = put_windows(statement, why);
	if (!err && *engine && !cluster) {
		snprintf(text, sizeof(text), "ENGINE = %sMergeTree", engine);
		err = replace(statement, "ENGINE = MergeTree", text, why);
	}
	if (!err && ddl_places.replica_path)
		err = replace(statement, "/clickhouse/tables/{shard}/{database}/{table}",
			      ddl_places.replica_path, why);
	return err;
}
