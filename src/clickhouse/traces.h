/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spans' table: its name, and whether attributes are Map or JSON columns. The view otel_span
 * (sql/views/otel_span.sql) is adapted to the table, hidden_span to its types; all other views read
 * otel_span.
 */
#ifndef UNDERSPAN_CLICKHOUSE_TRACES_H
#define UNDERSPAN_CLICKHOUSE_TRACES_H

#include "clickhouse/client.h"

struct traces_form {
	char table[256]; /* TABLE or DATABASE.TABLE */
	bool found;	 /* the table exists */
	char lacks[64];	 /* a column that the exporter's table has and this one lacks, with its type
			  */
	bool json_span, json_resource;
};

/*
 * Inspects `table`; NULL: the table recorded in the comment of otel_span (may be NULL), otherwise
 * otel_traces. Errors: as clickhouse_query_text(); -EINVAL: name too long.
 */
int traces_find(struct clickhouse_client *client, const char *table, const char *view_comment,
		struct traces_form *ret, struct why *why);

/*
 * The table that the view otel_span reads; otel_traces without a view. -EINVAL: not `wanted`, which
 * may be NULL.
 */
int traces_of_view(struct clickhouse_client *client, const char *wanted, char ret_table[256],
		   struct why *why);

/* The view's text for that table; heap; NULL: out of memory. */
char *traces_view(const char *text, const struct traces_form *form);

/* Whether a view reads spans, directly or through another view. */
bool traces_are_read_by(const char *text);

/* Part of otel_span's mark: the table of the view. "": otel_traces with maps. */
void traces_mark(const struct traces_form *form, char *buf, size_t size);

#endif
