// SPDX-License-Identifier: Apache-2.0
/* What operators choose about new tables. See ddl_places.h. */
#include "clickhouse/ddl_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct ddl_places ddl_places;

static bool stays_in_quotes(const char *s)
{
	size_t n = strspn(s,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/{}");

	return n > 0 && n < 256 && !s[n];
}

int ddl_places_check(struct why *why)
{
	const char *path = ddl_places.replica_path, *policy = ddl_places.storage_policy;

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
		return why_fail(why, EINVAL, "storage_policy: '%.100s' is no policy's name",
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

int ddl_places_put(char **statement, struct why *why)
{
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
	if (!err && ddl_places.replica_path)
		err = replace(statement, "/clickhouse/tables/{shard}/{database}/{table}",
			      ddl_places.replica_path, why);
	return err;
}
