/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns that all per-thread tables begin with. A tracker's row struct starts with a
 * struct row_common, which src/pipeline/enrich.c fills from the event's header.
 */
#ifndef UNDERSPAN_ROW_H
#define UNDERSPAN_ROW_H

#include <stdint.h>

#include "events/event.h"
#include "pipeline/column.h"

/* Strings are borrowed: they live until the row is written. */
struct row_common {
	const char *host;
	const char *container_id;
	const char *pod_uid;
	const char *thread_name; /* as Python knows it; '' when unknown */
	uint64_t start_ns;	 /* CLOCK_MONOTONIC */
	uint64_t end_ns;
	uint64_t duration_ns;
	uint32_t pid, tid, host_pid, host_tid;
	float weight; /* 1 unless sampled */
	char comm[EVENT_COMM_LEN];
	char trace_id[33]; /* empty until known */
	char span_id[17];
};

enum { ROW_COMMON_N_COLUMNS = 15 };
extern const struct column row_common_columns[ROW_COMMON_N_COLUMNS];

#define TABLE_WITH_COMMON_COLUMNS(name_, own)                                                      \
	{                                                                                          \
		.name = (name_), .columns = { row_common_columns, (own) }, .n_columns = {          \
			ROW_COMMON_N_COLUMNS,                                                      \
			sizeof(own) / sizeof((own)[0])                                             \
		}                                                                                  \
	}

#endif
