/* SPDX-License-Identifier: Apache-2.0 */
/* Where batches go: ClickHouse or stdout. A sink is used by the sender thread alone. */
#ifndef UNDERSPAN_SINK_H
#define UNDERSPAN_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/buffer.h"
#include "pipeline/column.h"
#include "util.h"

/* Rows of one table in their final bytes: nothing is added once it has been closed. */
struct batch {
	struct batch *next;
	uint32_t table; /* index in the pipeline */
	uint64_t rows;
	uint64_t opened_ns; /* CLOCK_MONOTONIC of the first row */
	uint64_t sequence;  /* of this table in this run; part of the deduplication token */
	uint32_t attempts;
	bool gzipped;
	struct buffer body;
};

/* Three outcomes, decided in one place a sink. */
enum send_result {
	SEND_OK,     /* the rows are where they belong */
	SEND_RETRY,  /* the same bytes may succeed later */
	SEND_DROP,   /* they never will */
	SEND_BROKEN, /* nor will any others: the sink is gone, the agent may as well end */
};

struct sink {
	const char *name;
	bool rows_name_their_table; /* each JSON object begins with "table" */
	enum send_result (*send)(struct sink *sink, const struct table *table, struct batch *batch,
				 struct why *why);
	/* From another thread: a send under way ends soon with SEND_RETRY. May be NULL. */
	void (*cancel)(struct sink *sink);
	void (*free)(struct sink *sink);
};

struct clickhouse_endpoint;

struct sink *sink_stdout_new(void);

/* `run_token` tells this run of the agent from every other: it begins each deduplication token. */
int sink_clickhouse_new(const struct clickhouse_endpoint *endpoint, const char *run_token,
			bool async_insert, struct sink **ret_sink, struct why *why);

#endif
