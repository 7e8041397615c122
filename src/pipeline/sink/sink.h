/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Destination of rows: ClickHouse, stdout, or a command's function. A sink of batches is used by
 * the sender thread only, a sink of rows by the collector only.
 */
#ifndef UNDERSPAN_PIPELINE_SINK_SINK_H
#define UNDERSPAN_PIPELINE_SINK_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/batch.h"
#include "rows/column.h"
#include "base/util.h"

/* Result of sending a batch. */
enum send_result {
	SEND_OK,	 /* delivered */
	SEND_RETRY,	 /* retry later; other batches may succeed now */
	SEND_RETRY_ALL,	 /* no batch can be sent before ready_at() */
	SEND_RETRY_SLOW, /* needs an operator (missing table, wrong password): kept until then */
	SEND_SPLIT_DAYS, /* too many days for one INSERT: split by days */
	SEND_REFUSED,	 /* some rows will never be accepted: split, then dead-letter */
	SEND_BROKEN,	 /* the sink is permanently gone: the agent ends */
	SEND_CANCELLED,	 /* ended by cancel(): may succeed in another run */
};

struct send_reply {
	struct why why;		 /* unless SEND_OK: the reason */
	uint64_t retry_after_ns; /* Retry-After of the server; 0: none */
	uint64_t server;	 /* server id; 0: single server */
	bool only_server;	 /* no other server is configured */
	bool not_sent;		 /* a query before the INSERT failed */
	bool unknown;		 /* the rows may have been inserted */
	size_t columns_left_out; /* columns omitted because the table lacks them */
	uint64_t rows_taken;	 /* BROKEN, CANCELLED: number of first rows delivered */
};

struct sink {
	const char *name;
	bool rows_name_their_table; /* JSON objects start with "table" */
	/*
	 * Not NULL: receives each row; no batches are made, and of the functions below only free()
	 * is called. The row is borrowed.
	 */
	void (*add_row)(struct sink *sink, const struct table *table, const void *row);
	/* With add_row: called about ten times a second. May be NULL. */
	void (*tick)(struct sink *sink, uint64_t now_ns);
	/*
	 * The statement to seal a table's batches with. NULL: batches are neither sealed nor
	 * spooled; the bytes are sent unchanged.
	 */
	int (*statement)(const struct table *table, struct buffer *ret_sql);
	enum send_result (*send)(struct sink *sink, const struct batch *batch,
				 struct send_reply *reply);
	/* CLOCK_MONOTONIC of the next possible send. May be NULL: always. */
	uint64_t (*ready_at)(struct sink *sink);
	/* Thread-safe: a running send ends soon with SEND_CANCELLED. May be NULL. */
	void (*cancel)(struct sink *sink);
	void (*free)(struct sink *sink);
};

struct clickhouse_endpoint;

struct sink *sink_stdout_new(void);

/* Uses the first working endpoint until it fails. */
int sink_clickhouse_new(const struct clickhouse_endpoint *endpoints, size_t n_endpoints,
			bool async_insert, struct sink **ret_sink, struct why *why);

/*
 * Thread-safe: later sends use the new endpoints; a running send continues. pipeline_sink_changed()
 * wakes waiting batches. On an error nothing changes.
 */
int sink_clickhouse_replace(struct sink *sink, const struct clickhouse_endpoint *endpoints,
			    size_t n_endpoints, struct why *why);

#endif
