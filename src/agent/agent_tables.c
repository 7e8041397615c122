// SPDX-License-Identifier: Apache-2.0
/* Columns of the tables about the agent. See agent_tables.h. */
#include "agent/agent_tables.h"

#define LOW_STRING	   "LowCardinality(String)"
#define AGENT_STRING(m)	   COLUMN(COLUMN_STRING, struct agent_row, m, #m, LOW_STRING)
#define AGENT_TIME(m, n)   COLUMN(COLUMN_TIME, struct agent_row, m, n, "DateTime64(6, 'UTC')")
#define HEALTH_STRING(m)   COLUMN(COLUMN_STRING, struct probe_health_row, m, #m, LOW_STRING)
#define HEALTH(kind, m, t) COLUMN(kind, struct probe_health_row, m, #m, t)

#define AGENT_COUNT(m)	      COLUMN(COLUMN_U64, struct agent_row, counts.m, #m, "UInt64")
#define COLUMN_OF_COUNT_PLAIN AGENT_COUNT
#define COLUMN_OF_COUNT_LOSS  AGENT_COUNT
#define COLUMN_OF_COUNT_LACK  AGENT_COUNT
#define COLUMN_OF_COUNT_GAUGE AGENT_COUNT
#define COLUMN_OF_COUNT_COST(m)                                                                    \
	COLUMN(COLUMN_MAYBE_U64, struct agent_row, m, #m, "Nullable(UInt64)")

static const struct column agent_columns[] = { AGENT_STRING(host),
					       AGENT_STRING(version),
					       AGENT_STRING(tracker),
					       AGENT_TIME(start_ns, "start_time"),
					       AGENT_TIME(end_ns, "end_time"),
#define X(name, kind, what) COLUMN_OF_##kind(name),
					       AGENT_COUNTS(X)
#undef X
};

static const struct column probe_health_columns[] = {
	HEALTH_STRING(host),
	HEALTH_STRING(container_id),
	HEALTH_STRING(pod_uid),
	HEALTH(COLUMN_U32, host_pid, "UInt32"),
	COLUMN(COLUMN_TIME, struct probe_health_row, time_ns, "time", "DateTime64(6, 'UTC')"),
	HEALTH_STRING(tracker),
	HEALTH(COLUMN_U8, live, "UInt8"),
	HEALTH_STRING(method),
	HEALTH_STRING(python_version),
	HEALTH_STRING(binary),
	HEALTH_STRING(build_id),
	HEALTH_STRING(reason),
};

const struct table agent_table = {
	.name = "ebpf_agent",
	.columns = { agent_columns },
	.n_columns = { sizeof(agent_columns) / sizeof(agent_columns[0]) },
};

const struct table probe_health_table = {
	.name = "ebpf_probe_health",
	.columns = { probe_health_columns },
	.n_columns = { sizeof(probe_health_columns) / sizeof(probe_health_columns[0]) },
};

size_t agent_tables_list(const struct tracker_set *set, const struct table *ret[AGENT_TABLES_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < set->n; i++)
		ret[n++] = &set->items[i].tracker->table;
	ret[n++] = &agent_table;
	ret[n++] = &probe_health_table;
	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].tracker->second_table)
			ret[n++] = set->items[i].tracker->second_table;
	}
	return n;
}
