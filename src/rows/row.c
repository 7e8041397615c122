// SPDX-License-Identifier: Apache-2.0
/* Common columns of all per-thread tables. See row.h. */
#include "rows/row.h"

#define COMMON(kind, member, type) COLUMN(kind, struct row_common, member, #member, type)
#define TIME_AS(member, name)                                                                      \
	COLUMN(COLUMN_TIME, struct row_common, member, name, "DateTime64(6, 'UTC')")

/* Order, names and types as in every sql/tables/ebpf_*.sql. */
const struct column row_common_columns[ROW_COMMON_N_COLUMNS] = {
	COMMON(COLUMN_STRING, host, "LowCardinality(String)"),
	COMMON(COLUMN_STRING, container_id, "LowCardinality(String)"),
	COMMON(COLUMN_STRING, pod_uid, "LowCardinality(String)"),
	COMMON(COLUMN_U32, pid, "UInt32"),
	COMMON(COLUMN_U32, tid, "UInt32"),
	COMMON(COLUMN_U32, host_pid, "UInt32"),
	COMMON(COLUMN_U32, host_tid, "UInt32"),
	COMMON(COLUMN_CHARS, comm, "LowCardinality(String)"),
	COMMON(COLUMN_STRING, thread_name, "LowCardinality(String)"),
	TIME_AS(start_ns, "start_time"),
	TIME_AS(end_ns, "end_time"),
	COMMON(COLUMN_U64, duration_ns, "UInt64"),
	COMMON(COLUMN_CHARS, trace_id, "String"),
	COMMON(COLUMN_CHARS, span_id, "String"),
	COMMON(COLUMN_F32, weight, "Float32"),
	COMMON(COLUMN_STRING, boot_id, "LowCardinality(String)"),
	COMMON(COLUMN_U32, pidns, "UInt32"),
	COMMON(COLUMN_STRING, service, "LowCardinality(String)"),
	COMMON(COLUMN_STRING, namespace, "LowCardinality(String)"),
	COMMON(COLUMN_STRING, pod, "LowCardinality(String)"),
	COMMON(COLUMN_STRING, container, "LowCardinality(String)"),
};
