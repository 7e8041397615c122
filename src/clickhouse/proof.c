// SPDX-License-Identifier: Apache-2.0
/* Whether a server is ClickHouse. See proof.h. */
#include "clickhouse/proof.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "clickhouse/client.h"

enum { LIMIT_S = 5, ID_DIGITS = 16 };

/* Neither in the question, which a server may repeat, nor an earlier answer of a cache. */
static bool is_answer(const char *text, const char *id)
{
	char wanted[2 * ID_DIGITS + 2];

	snprintf(wanted, sizeof(wanted), "%s-%s", id, id);
	return !strncmp(text, wanted, strlen(wanted)) &&
	       !text[strlen(wanted) + strspn(text + strlen(wanted), "\r\n")];
}

int clickhouse_prove(const struct clickhouse_endpoint *endpoint, struct why *why)
{
	struct clickhouse_endpoint brief = *endpoint;
	struct clickhouse_client *client;
	struct clickhouse_reply reply = { 0 };
	AUTO_FREE char *text = NULL;
	char id[ID_DIGITS + 1], sql[64];
	int err;

	brief.patient = false;
	brief.give_up = NULL;
	brief.connect_timeout_ns = brief.stall_timeout_ns = brief.timeout_ns = LIMIT_S *
									       NSEC_PER_SEC;
	err = clickhouse_client_new(&brief, &client, why);
	if (err)
		return err;
	random_hex(id, ID_DIGITS);
	snprintf(sql, sizeof(sql), "SELECT concat('%s', '-', '%s')", id, id);
	err = clickhouse_query_text(client, sql, "TabSeparated", NULL, &text, NULL, &reply, NULL);
	clickhouse_client_free(client);
	if ((err && err != -EFBIG) || (!err && is_answer(text, id)))
		return 0;
	return why_fail(why, EREMOTEIO,
			"%.100s answered, but with no header of ClickHouse, and a question of "
			"underspan's wrongly: is that ClickHouse? Its HTTP port is 8123 by default "
			"(https: 8443)",
			endpoint->url);
}
