// SPDX-License-Identifier: Apache-2.0
/* Requests that a request sent to other servers. See outbound.h. */
#include "commands/explain/outbound.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/ask.h"
#include "commands/request_parts.h"

/* A share of a part, in percent, that explains it. So many requests are one too many. */
enum { SHARE_PERCENT = 50, MANY_REQUESTS = 20 };

int outbound_attach(struct clickhouse_client *client, json_t *r, struct why *why)
{
	return explain_attach(client, r, r, "outbound", "explain/outbound.sql",
			      explain_number(r, "handled_us"), explain_number(r, "to_us"), why);
}

/* "GET /path to SERVICE port N", with the host if it is another. */
static void put_request(char *buf, size_t size, const json_t *r, const json_t *row)
{
	bool elsewhere = strcmp(explain_text(row, "host"), explain_text(r, "host")) != 0;

	snprintf(buf, size, "%.16s %.120s to %.60s port %lld%s%.60s", explain_text(row, "method"),
		 explain_text(row, "path"), explain_text(row, "service"),
		 (long long)explain_number(row, "server_port"), elsewhere ? " on " : "",
		 elsewhere ? explain_text(row, "host") : "");
}

void outbound_add_lines(struct lines *lines, const json_t *r)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, "outbound"), i, row) {
		char label[LABEL_MAX], request[320];

		put_request(request, sizeof(request), r, row);
		snprintf(label, sizeof(label), "sent %s", request);
		lines_add(lines, label, explain_number(row, "begin_us"),
			  explain_number(row, "end_us"));
	}
}

/* "accept queue 1286.8, sleep 50.2": the largest parts, ms. */
static void put_parts(char *buf, size_t size, const json_t *row)
{
	const json_t *part;
	size_t i, n = 0;

	snprintf(buf, size, "not measured");
	json_array_foreach (json_object_get(row, "parts"), i, part) {
		const char *name = json_string_value(json_array_get(part, 0)) ?: "";
		const struct ledger_part *known = request_part_named(name);

		n += (size_t)snprintf(buf + n, size - n, "%s%.40s %.1f", i ? ", " : "",
				      known ? known->brief : name,
				      json_number_value(json_array_get(part, 1)));
		if (n >= size)
			return;
	}
}

static void put_fix(struct cause *c, const json_t *row, long long requests)
{
	const char *id = explain_text(row, "request_id");

	if (*c->fix)
		return;
	if (requests >= MANY_REQUESTS)
		FIX(c,
		    "ask for all of it at once: %lld requests took %.1f ms each in the mean "
		    "(underspan explain %.20s: the longest)",
		    requests, explain_ms(row, "ms") / (double)requests, id);
	else
		FIX(c, "see where that time went: underspan explain %.20s", id);
}

void outbound_add(const json_t *r, struct cause *c)
{
	const json_t *row = json_array_get(json_object_get(r, "outbound"), 0);
	long long requests = (long long)(explain_ms(row, "requests") + 0.5);
	char request[320], parts[160];
	size_t n = strlen(c->said);

	if (!row || explain_ms(row, "ms") * 100 < c->ms * SHARE_PERCENT)
		return;
	put_request(request, sizeof(request), r, row);
	put_parts(parts, sizeof(parts), row);
	if (requests > 1)
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; it sent %lld requests (the longest: %s), %.1f ms in all, the largest "
			 "parts there: %s",
			 requests, request, explain_ms(row, "ms"), parts);
	else
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; it sent %s: %.1f ms, the largest parts there: %s", request,
			 explain_ms(row, "ms"), parts);
	put_fix(c, row, requests);
}
