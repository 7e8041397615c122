/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where rows go: ClickHouse, stdout, or a function of a command's. A sink that takes batches is
 * used by the sender thread alone, one that takes rows by the collector's.
 */
#ifndef UNDERSPAN_SINK_H
#define UNDERSPAN_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/batch.h"
#include "pipeline/column.h"
#include "util.h"

/* What became of a batch, decided in one place a sink. */
enum send_result {
	SEND_OK,	 /* the rows are where they belong */
	SEND_RETRY,	 /* the same bytes may succeed later, and others may now */
	SEND_RETRY_ALL,	 /* nothing can be sent before ready_at() */
	SEND_RETRY_SLOW, /* when somebody has made a table or mended a password: kept till then */
	SEND_SPLIT_DAYS, /* rows of too many days for one INSERT */
	SEND_REFUSED,	 /* these rows, or some of them, never will succeed */
	SEND_BROKEN,	 /* nor will any others: the sink is gone, the agent may as well end */
	SEND_CANCELLED,	 /* cancel() has ended it: the same bytes may succeed in another run */
};

struct send_reply {
	struct why why;		 /* unless SEND_OK */
	uint64_t retry_after_ns; /* what the other side asks for; 0: nothing */
	uint64_t rows_taken;	 /* BROKEN, CANCELLED: so many of the first rows are delivered */
};

struct sink {
	const char *name;
	bool rows_name_their_table; /* each JSON object begins with "table" */
	/*
	 * Not NULL: takes rows as they are made, so that there are no batches and none of the
	 * functions below but free() is called. The row is borrowed.
	 */
	void (*add_row)(struct sink *sink, const struct table *table, const void *row);
	/* Together with that, some ten times a second, for what comes with time. May be NULL. */
	void (*tick)(struct sink *sink, uint64_t now_ns);
	/*
	 * The statement that a table's batches are sealed with. NULL: they are not sealed, and no
	 * spool is of use: the bytes are sent as they are.
	 */
	int (*statement)(const struct table *table, struct buffer *ret_sql);
	enum send_result (*send)(struct sink *sink, const struct batch *batch,
				 struct send_reply *reply);
	/* CLOCK_MONOTONIC from which on it is worth a try. May be NULL: always. */
	uint64_t (*ready_at)(struct sink *sink);
	/* From another thread: a send under way ends soon, with SEND_CANCELLED. May be NULL. */
	void (*cancel)(struct sink *sink);
	void (*free)(struct sink *sink);
};

struct clickhouse_endpoint;

struct sink *sink_stdout_new(void);

/* The first endpoint that works is used until it does not. */
int sink_clickhouse_new(const struct clickhouse_endpoint *endpoints, size_t n_endpoints,
			bool async_insert, struct sink **ret_sink, struct why *why);

/*
 * From any thread: what is sent from now on goes there; a send under way is not disturbed.
 * pipeline_sink_changed() wakes those that wait for the old ones. On an error nothing has changed.
 */
int sink_clickhouse_replace(struct sink *sink, const struct clickhouse_endpoint *endpoints,
			    size_t n_endpoints, struct why *why);

#endif
