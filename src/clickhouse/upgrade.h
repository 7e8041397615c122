/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upgrade plans: statements that bring a database to the state of sql/, from an empty database, any
 * older version, or an interrupted upgrade. Executed by schema.h.
 */
#ifndef UNDERSPAN_CLICKHOUSE_UPGRADE_H
#define UNDERSPAN_CLICKHOUSE_UPGRADE_H

#include "clickhouse/live_schema.h"

/* 1: before ebpf_schema existed. Incremented with each change under sql/schema, tables
 * and views. */
enum { SCHEMA_VERSION = 10 };

enum upgrade_kind {
	UPGRADE_CREATE,
	UPGRADE_CHANGE,
	UPGRADE_NOTE,  /* a difference that no safe statement removes */
	UPGRADE_LATER, /* a view that needs a table not created by underspan */
};

struct upgrade_step {
	enum upgrade_kind kind;
	char *what;	 /* the difference as a sentence */
	char *statement; /* NULL: none */
};

struct upgrade_plan {
	struct upgrade_step *steps; /* in order of execution */
	size_t n;
	size_t n_statements;
	size_t n_differences; /* CREATE, CHANGE, NOTE */
};

/*
 * `cluster` NULL: single server, or the cluster named in existing Distributed tables. `agents`:
 * number of writing agents; 0: those of the last ten minutes.
 */
int upgrade_plan_make(const struct live_schema *live, const char *cluster, uint64_t agents,
		      struct upgrade_plan *ret, struct why *why);
void upgrade_plan_free(struct upgrade_plan *plan);

/* CREATE statement of ebpf_schema; heap; NULL: out of memory. */
char *upgrade_schema_table(const char *cluster);

#endif
