// SPDX-License-Identifier: Apache-2.0
/* The complete answer of a query as JSON rows. See rows.h. */
#include "clickhouse/rows.h"

int clickhouse_query_rows(struct clickhouse_client *client, const char *sql, const char *format,
			  const struct clickhouse_param *params, json_t **ret_rows,
			  struct clickhouse_reply *reply, struct why *why)
{
	AUTO_FREE char *text = NULL;
	json_error_t error = { 0 };
	json_t *root, *rows;
	size_t len;
	int err = clickhouse_query_text(client, sql, format, params, &text, &len, reply, why);

	if (err)
		return err;
	/* names of others, as of spans, may contain a NUL: cut there */
	root = json_loadb(text, len, JSON_ALLOW_NUL, &error);
	rows = json_object_get(root, "data");
	if (json_is_array(rows))
		*ret_rows = json_incref(rows);
	else if (!reply->from_clickhouse)
		err = why_fail(why, EBADMSG,
			       "the answer has no header of ClickHouse and is not JSON: is that "
			       "ClickHouse? Its HTTP port is 8123 by default (https: 8443)");
	else
		err = why_fail(why, EBADMSG, "ClickHouse's answer is not JSON: %s",
			       root ? "it has no rows" : error.text);
	json_decref(root);
	return err;
}
