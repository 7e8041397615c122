// SPDX-License-Identifier: Apache-2.0
/* Choices that existing tables do not follow. See kept_places.h. */
#include "clickhouse/kept_places.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "clickhouse/ddl_places.h"

/* Holds rows: neither the schema's own table, a view, nor a Distributed table. */
static bool has_rows(const struct live_object *o)
{
	return !strncmp(o->name, "ebpf_", 5) && strncmp(o->name, "ebpf_schema", 11) != 0 &&
	       strstr(o->engine, "MergeTree");
}

struct kept {
	size_t n;
	const struct live_object *first;
};

/* Tables whose definition lacks `wanted`. */
static struct kept without(const struct live_schema *live, const char *wanted)
{
	struct kept kept = { 0 };

	for (size_t i = 0; i < live->n_objects; i++) {
		const struct live_object *o = &live->objects[i];

		if (!has_rows(o) || strstr(o->engine_full, wanted))
			continue;
		kept.first = kept.n++ ? kept.first : o;
	}
	return kept;
}

static const char *time_of(const struct live_object *o)
{
	return strstr(o->engine_full, "toDateTime(time)") ? "time" : "start_time";
}

static void tell_keep(const struct live_schema *live, const char *prefix)
{
	unsigned long long seconds = ddl_places.keep_ns / NSEC_PER_SEC;
	bool days = seconds % 86400 == 0;
	unsigned long long n = days ? seconds / 86400 : seconds;
	char wanted[64];
	struct kept kept;

	snprintf(wanted, sizeof(wanted), "toInterval%s(%llu)", days ? "Day" : "Second", n);
	kept = without(live, wanted);
	if (kept.n)
		log_warn(
			"schema: --keep is for new tables: %zu that exist keep%s their TTL; to "
			"change one: ALTER TABLE %s%.100s MODIFY TTL toDateTime(%s) + INTERVAL %llu "
			"%s",
			kept.n, kept.n == 1 ? "s" : "", prefix, kept.first->name,
			time_of(kept.first), n, days ? "DAY" : "SECOND");
}

static void tell_policy(const struct live_schema *live, const char *prefix)
{
	char wanted[160];
	struct kept kept;

	snprintf(wanted, sizeof(wanted), "storage_policy = '%.100s'", ddl_places.storage_policy);
	kept = without(live, wanted);
	if (kept.n)
		log_warn("schema: --storage_policy is for new tables: %zu that exist keep%s their "
			 "own; to change one: ALTER TABLE %s%.100s MODIFY SETTING %s",
			 kept.n, kept.n == 1 ? "s" : "", prefix, kept.first->name, wanted);
}

static void tell_engine(const struct live_schema *live)
{
	const char *wanted = ddl_engine_names[ddl_places.engine];
	size_t n = 0;

	for (size_t i = 0; i < live->n_objects; i++) {
		const struct live_object *o = &live->objects[i];
		const char *family = strstr(o->engine, wanted);

		/* ReplicatedReplacingMergeTree is of Replicated; MergeTree is the end of all */
		n += has_rows(o) && (ddl_places.engine == DDL_ENGINE_PLAIN
					     ? !strncmp(o->engine, "Replicated", 10) ||
						       !strncmp(o->engine, "Shared", 6)
					     : !family);
	}
	if (n)
		log_warn("schema: --engine is for new tables: %zu that exist keep%s their engine; "
			 "another engine needs other tables: --clickhouse_database=NAME",
			 n, n == 1 ? "s" : "");
}

void kept_places_tell(const struct live_schema *live, const char *prefix)
{
	if (ddl_places.keep_ns)
		tell_keep(live, prefix ?: "");
	if (ddl_places.storage_policy)
		tell_policy(live, prefix ?: "");
	if (ddl_places.engine != DDL_ENGINE_AUTO)
		tell_engine(live);
}
