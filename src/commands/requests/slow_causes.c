// SPDX-License-Identifier: Apache-2.0
/* Causes of the slowest requests. See slow_causes.h. */
#include "commands/requests/slow_causes.h"

#include <string.h>

#include "commands/explain/causes.h"
#include "commands/explain/ledger.h"
#include "commands/report.h"

enum { ENDPOINTS_EXPLAINED = 3 };

static bool same_endpoint(const json_t *a, const json_t *b)
{
	return !strcmp(report_text(a, "method"), report_text(b, "method")) &&
	       !strcmp(report_text(a, "path"), report_text(b, "path"));
}

/* Whether an earlier row, which was slower, is of the same endpoint. */
static bool is_further(const json_t *slowest, size_t i)
{
	for (size_t j = 0; j < i; j++) {
		if (same_endpoint(json_array_get(slowest, j), json_array_get(slowest, i)))
			return true;
	}
	return false;
}

static int explain_row(struct clickhouse_client *client, json_t *row, struct why *why)
{
	const char *id = report_text(row, "request_id");
	const struct ledger_wanted wanted = { "", id };
	json_t *requests = NULL;
	const json_t *request;
	size_t i;
	int err = ledger_find(client, NULL, &wanted, NULL, &requests, why);

	json_array_foreach (requests, i, request) { /* of a trace: all with the same id */
		if (!err && !strcmp(report_text(request, "request_id"), id))
			json_object_set_new(row, "causes", causes_of(request));
	}
	json_decref(requests);
	return err;
}

void slow_causes_add(struct clickhouse_client *client, json_t *report)
{
	json_t *slowest = json_object_get(report, "slowest"), *row;
	struct why why = { { 0 } };
	size_t i, n = 0;

	json_array_foreach (slowest, i, row) {
		if (n == ENDPOINTS_EXPLAINED)
			break;
		if (is_further(slowest, i))
			continue;
		n++;
		if (!explain_row(client, row, &why))
			continue;
		report_add_note(report, "causes: not known: %s", why.text);
		return;
	}
}
