/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common columns of all per-thread tables. A tracker's row struct starts with struct row_common,
 * filled from the event's header by enrich.c.
 */
#ifndef UNDERSPAN_ROWS_ROW_H
#define UNDERSPAN_ROWS_ROW_H

#include <stdint.h>

#include "events/event.h"
#include "rows/column.h"

/* Strings are borrowed until the row is written. */
struct row_common {
	const char *host;
	const char *container_id;
	const char *pod_uid;
	const char *boot_id;			 /* the kernel's, the same in all containers */
	const char *service;			 /* services.h */
	const char *namespace, *pod, *container; /* Kubernetes' */
	const char *thread_name;		 /* Python's name; '': unknown */
	uint64_t start_ns;			 /* CLOCK_MONOTONIC */
	uint64_t end_ns;
	uint64_t duration_ns;
	uint32_t pid, tid, host_pid, host_tid;
	uint32_t pidns; /* inode of the PID namespace; 0: unknown */
	float weight;	/* 1 unless sampled */
	char comm[EVENT_COMM_LEN];
	char trace_id[33]; /* '': unknown */
	char span_id[17];
};

enum { ROW_COMMON_N_COLUMNS = 21 };
extern const struct column row_common_columns[ROW_COMMON_N_COLUMNS];

#define TABLE_WITH_COMMON_COLUMNS(name_, own)                                                      \
	{                                                                                          \
		.name = (name_), .columns = { row_common_columns, (own) }, .n_columns = {          \
			ROW_COMMON_N_COLUMNS,                                                      \
			sizeof(own) / sizeof((own)[0])                                             \
		}                                                                                  \
	}

#endif
