// SPDX-License-Identifier: Apache-2.0
/*
 * The request ledger for `underspan explain`. See ledger.h. First finds ids and times of requests
 * by index, then asks the view request for these times and processes only.
 */
#include "commands/request_parts.h"
#include "commands/explain/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/explain/ask.h"
#include "commands/explain/beside.h"
#include "commands/explain/connections.h"
#include "commands/explain/locks.h"
#include "commands/explain/message.h"
#include "commands/explain/place.h"
#include "commands/explain/timeline.h"
#include "base/log.h"
#include "base/util.h"

/* ---- where to look ---- */

static int by_ids(struct clickhouse_client *client, const struct ledger_wanted *wanted,
		  json_t **ret_rows, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_trace_id", wanted->trace_id },
						   { "param_request_id", wanted->request_id },
						   { 0 } };

	return explain_ask(client, "explain/ledger.sql", params, ret_rows, why);
}

/* Adds the requests without a trace id on the threads of server spans. */
static int add_by_threads(struct clickhouse_client *client, const json_t *spans, json_t *rows,
			  struct why *why)
{
	json_t *servers = json_array(), *found = NULL, *span;
	AUTO_FREE char *pids = NULL, *tids = NULL;
	int64_t from_us = INT64_MAX, to_us = 0;
	char from[24], to[24];
	size_t i;
	int err;

	json_array_foreach (spans, i, span) {
		int64_t start_us = explain_number(span, "start_us");

		if (strcmp(explain_text(span, "kind"), "server") != 0 ||
		    !explain_number(span, "tid"))
			continue;
		json_array_append(servers, span);
		from_us = start_us < from_us ? start_us : from_us;
		to_us = start_us > to_us ? start_us : to_us;
	}
	pids = explain_numbers(servers, "pid", NULL);
	tids = explain_numbers(servers, "tid", NULL);
	i = json_array_size(servers);
	json_decref(servers);
	if (!i)
		return 0;
	if (!pids || !tids)
		return why_fail(why, ENOMEM, "out of memory");
	snprintf(from, sizeof(from), "%lld", (long long)from_us);
	snprintf(to, sizeof(to), "%lld", (long long)to_us);
	err = explain_ask(client, "explain/ledger_threads.sql",
			  (const struct clickhouse_param[]){ { "param_pids", pids },
							     { "param_tids", tids },
							     { "param_from_us", from },
							     { "param_to_us", to },
							     { 0 } },
			  &found, why);
	if (!err)
		json_array_extend(rows, found);
	json_decref(found);
	return err;
}

/*
 * Removes the requests of other hours than the wanted one, or than the last of the trace: a trace
 * id may be used for days, and the views read all rows between.
 */
static void keep_hours(const struct ledger_wanted *wanted, json_t *rows)
{
	int64_t oldest = INT64_MAX, newest = 0, around = 0, us;
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		us = explain_number(row, "from_us");
		oldest = us < oldest ? us : oldest;
		newest = us > newest ? us : newest;
		if (!strcmp(explain_text(row, "request_id"), wanted->request_id))
			around = us;
	}
	if (!newest)
		return;
	explain_keep_hours(wanted->trace_id, "requests", around ?: newest, &oldest, &newest);
	for (i = json_array_size(rows); i-- > 0;) {
		us = explain_number(json_array_get(rows, i), "from_us");
		if (us < oldest || us > newest)
			json_array_remove(rows, i);
	}
}

/* With all requests of the same trace id: the assignment of spans depends on them. */
static int where_to_look(struct clickhouse_client *client, const struct ledger_wanted *wanted,
			 const json_t *spans, json_t **ret_rows, struct why *why)
{
	json_t *same = NULL;
	const char *trace_id;
	int err = by_ids(client, wanted, ret_rows, why);

	if (!err && *wanted->trace_id)
		return add_by_threads(client, spans, *ret_rows, why);
	trace_id = explain_text(json_array_get(*ret_rows, 0), "trace_id");
	if (!err && *trace_id) {
		err = by_ids(client, &(struct ledger_wanted){ trace_id, "0" }, &same, why);
		if (!err)
			json_array_extend(*ret_rows, same);
		json_decref(same);
	}
	return err;
}

/* ---- the requests ---- */

/* The text with `what` replaced by a subquery in parentheses. Heap; NULL: out of memory. */
static char *inlined(const char *text, const char *what, const char *question, int len)
{
	char *sql = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);

	if (!out)
		return NULL;
	for (const char *at; (at = strstr(text, what)); text = at + strlen(what))
		fprintf(out, "%.*s(%.*s\n)", (int)(at - text), text, len, question);
	fputs(text, out);
	if (!fclose(out))
		return sql;
	free(sql);
	return NULL;
}

/* The view request inlined into requests.sql; without otel_span, if there is none. */
static char *requests_question(bool with_spans)
{
	static const char call[] = "request(from = {from:DateTime64(6, 'UTC')}, "
				   "to = {to:DateTime64(6, 'UTC')})";
	const char *view, *none = explain_sql_file("explain/no_spans.sql");
	int len = explain_view_question("views/request.sql", &view);
	AUTO_FREE char *whole = inlined(explain_sql_file("explain/requests.sql"), call, view, len);
	char *sql = !whole	 ? NULL
		    : with_spans ? strdup(whole)
				 : inlined(whole, "otel_span", none, (int)strlen(none));

	if (sql)
		explain_enable_conditions(sql);
	return sql;
}

static int ask_requests(struct clickhouse_client *client, bool with_spans,
			const struct clickhouse_param *params, json_t **ret_requests,
			struct why *why)
{
	AUTO_FREE char *question = requests_question(with_spans);

	return question ? explain_ask_text(client, question, params, ret_requests, why)
			: why_fail(why, ENOMEM, "out of memory");
}

static void put_moment(char buf[32], int64_t us)
{
	snprintf(buf, 32, "%lld.%06lld", (long long)(us / 1000000), (long long)(us % 1000000));
}

static int find_requests(struct clickhouse_client *client, const struct ledger_wanted *wanted,
			 const json_t *places, json_t **ret_requests, struct why *why)
{
	const char *trace_id = *wanted->trace_id
				       ? wanted->trace_id
				       : explain_text(json_array_get(places, 0), "trace_id");
	AUTO_FREE char *pids = explain_numbers(places, "pid", NULL);
	int64_t from_us = INT64_MAX, to_us = 0;
	char from[32], to[32];
	const struct clickhouse_param params[] = { { "param_trace_id", wanted->trace_id },
						   { "param_request_id", wanted->request_id },
						   { "param_span_trace", trace_id },
						   { "param_pids", pids },
						   { "param_from", from },
						   { "param_to", to },
						   { 0 } };
	const json_t *place;
	size_t i;
	int err;

	json_array_foreach (places, i, place) {
		int64_t us = explain_number(place, "from_us");

		from_us = us < from_us ? us : from_us;
		to_us = us >= to_us ? us + 1 : to_us;
	}
	if (!pids)
		return why_fail(why, ENOMEM, "out of memory");
	put_moment(from, from_us);
	put_moment(to, to_us);
	err = ask_requests(client, true, params, ret_requests, why);
	return err == NO_SUCH_TABLE ? ask_requests(client, false, params, ret_requests, why) : err;
}

/* ---- events around the requests ---- */

/* A shorter wait for a thread is not examined. */
enum { WAIT_MIN_US = 2000 };

/* Attaches the only row of threads.sql under `key`, with a copy of values of the whole request. */
static int attach_threads(struct clickhouse_client *client, json_t *r, const char *key,
			  int64_t from_us, int64_t to_us, struct why *why)
{
	int err = explain_attach(client, r, r, key, "explain/threads.sql", from_us, to_us, why);
	json_t *row = json_array_get(json_object_get(r, key), 0);

	if (err || !row)
		return err;
	json_object_set(r, "on_loop", json_object_get(row, "on_loop"));
	json_object_set(r, "threads", json_object_get(row, "threads"));
	if (strcmp(key, "threads") != 0)
		json_object_set(r, key, row);
	return 0;
}

/* How busy the threads were while the request waited in each queue. */
static int look_at_threads(struct clickhouse_client *client, json_t *r, struct why *why)
{
	int64_t from = explain_number(r, "from_us");
	int64_t accept_us = (int64_t)(explain_ms(r, "accept_queue_ms") * 1000);
	int64_t queue_us = (int64_t)(explain_ms(r, "queue_ms") * 1000);
	int64_t read = explain_number(r, "handled_us") -
		       (int64_t)(explain_ms(r, "pool_wait_ms") * 1000);
	int err = 0;

	if (accept_us < WAIT_MIN_US && queue_us < WAIT_MIN_US)
		return attach_threads(client, r, "threads", from, explain_number(r, "to_us"), why);
	if (accept_us >= WAIT_MIN_US)
		err = attach_threads(client, r, "accept_threads", from, from + accept_us, why);
	if (!err && queue_us >= WAIT_MIN_US)
		err = attach_threads(client, r, "queue_threads", read - queue_us, read, why);
	return err;
}

bool ledger_lacks(const json_t *r, const char *reason)
{
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(r, "not_measured"), i, item) {
		if (!strcmp(json_string_value(item) ?: "", reason))
			return true;
	}
	return false;
}

/* Whether parts need a probe that the process does not have. */
static bool lacks_probes(const json_t *r)
{
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(r, "not_measured"), i, item) {
		if (request_reason_tracker(json_string_value(item) ?: ""))
			return true;
	}
	return false;
}

/* The rows are many, and only their answer is of use. */
static int look_at_locks(struct clickhouse_client *client, json_t *r, int64_t from_us,
			 int64_t to_us, struct why *why)
{
	int err = explain_attach(client, r, r, "lock_waits", "explain/lock_waits.sql", from_us,
				 to_us, why);
	json_t *holders = err ? NULL : lock_holders(r);

	if (holders)
		json_object_set_new(r, "lock_holders", holders);
	if (!err)
		json_object_set_new(r, "lock_queue", lock_queue(r));
	json_object_del(r, "lock_waits");
	return err;
}

/* A smaller share of computation, of a wait for a CPU or for the client is no cause. */
enum { SHARE = 10 };

/* What depends on no other answer. */
static void add_questions(const json_t *r, struct beside *b)
{
	int64_t from = explain_number(r, "from_us"), to = explain_number(r, "to_us");
	int64_t handled = explain_number(r, "handled_us");

	beside_add(b, "meanwhile", "explain/meanwhile.sql", from,
		   explain_number(r, "waited_to_us"));
	beside_add(b, "kept", "explain/kept.sql", from, handled);
	beside_add(b, "asleep", "explain/asleep.sql", from, handled);
	beside_add(b, "gc", "explain/gc.sql", from, to);
	beside_add(b, "throttle", "explain/throttle.sql", from, to);
	beside_add(b, "places", "explain/places.sql", handled, to);
	if (explain_ms(r, "cpu_ms") * SHARE >= explain_ms(r, "duration_ms"))
		beside_add(b, "computed", "explain/computed.sql", handled, to);
	if (explain_ms(r, "runq_ms") * SHARE >= explain_ms(r, "duration_ms")) {
		beside_add(b, "crowd", "explain/crowd.sql", handled, to);
		beside_add(b, "crowd_total", "explain/crowd_total.sql", handled, to);
	}
	/* a later request of a connection did not wait for the handshake */
	if (explain_number(r, "connection_request") == 1 && explain_number(r, "server_port"))
		beside_add(b, "dropped", "explain/dropped.sql", from, from);
	if ((explain_ms(r, "client_slow_ms") + explain_ms(r, "client_wait_ms") +
	     explain_ms(r, "body_wait_ms")) *
			    SHARE >=
		    explain_ms(r, "duration_ms") &&
	    explain_number(r, "peer_port"))
		beside_add(b, "client", "explain/client.sql", from, to);
	beside_add(b, "holders", "explain/holders.sql", handled, to);
	beside_add(b, "sampled", "explain/sampled.sql", from, to);
	if (lacks_probes(r))
		beside_add(b, "refused", "explain/refused.sql", from, to);
}

/* Is there a part, long enough for a cause, whose waits have no rows with a place? */
static bool lacks_places(const json_t *r)
{
	enum { PART_SHARE = 10 };
	static const struct {
		const char *part, *cause;
	} parts[] = { { "lock_ms", "lock" },   { "net_ms", "net" },	    { "disk_ms", "disk" },
		      { "sleep_ms", "sleep" }, { "pipe_ms", "pipe" },	    { "child_ms", "child" },
		      { "other_ms", "other" }, { "fault_ms", "page_fault" } };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		double ms = explain_ms(r, parts[i].part);

		if (ms * 1000 >= WAIT_MIN_US && ms * PART_SHARE >= explain_ms(r, "duration_ms") &&
		    !place_has_row(r, parts[i].cause))
			return true;
	}
	return false;
}

/* What depends on another answer, or on the model of the threads. */
static int ask_in_turn(struct clickhouse_client *client, json_t *r, struct why *why)
{
	int64_t from = explain_number(r, "from_us"), to = explain_number(r, "to_us");
	int64_t handled = explain_number(r, "handled_us");
	int err = look_at_threads(client, r, why);

	if (!err)
		err = explain_attach(client, r, r, "waits", "explain/waits.sql", handled, to, why);
	if (!err)
		message_name_waits(json_object_get(r, "waits"));
	if (!err && (lacks_places(r) || (explain_is_loop(r) && ledger_lacks(r, "work_elsewhere"))))
		err = explain_attach(client, r, r, "pending", "explain/pending.sql", handled, to,
				     why);
	if (!err && lacks_places(r))
		err = explain_attach(client, r, r, "profile", "explain/profile.sql", handled, to,
				     why);
	if (!err)
		err = connections_attach(client, r, why);
	if (!err && explain_ms(r, "lock_ms") * 1000 >= WAIT_MIN_US)
		err = look_at_locks(client, r, handled, to, why);
	if (!err && explain_is_loop(r))
		err = explain_attach(client, r, r, "stalls", "explain/stalls.sql", from, to, why);
	if (!err && explain_is_loop(r) && ledger_lacks(r, "work_elsewhere"))
		err = explain_attach(client, r, r, "pool", "explain/pool.sql", handled, to, why);
	if (!err && explain_is_loop(r) && ledger_lacks(r, "work_elsewhere"))
		err = explain_attach(client, r, r, "last_worker", "explain/last_worker.sql",
				     handled, to, why);
	return err;
}

static int look_around(struct clickhouse_client *client, struct clickhouse_client *second,
		       json_t *r, struct why *why)
{
	struct beside beside = { 0 };
	struct why later;
	int err, beside_err;

	add_questions(r, &beside);
	beside_begin(&beside, r, second);
	err = ask_in_turn(client, r, why);
	beside_err = beside_end(&beside, r, client, err ? &later : why);
	return err ?: beside_err;
}

int ledger_find(struct clickhouse_client *client, struct clickhouse_client *second,
		const struct ledger_wanted *wanted, const json_t *spans, json_t **ret_requests,
		struct why *why)
{
	json_t *places = NULL, *request;
	size_t i;
	int err = where_to_look(client, wanted, spans, &places, why);

	if (!err)
		keep_hours(wanted, places);
	if (!err && json_array_size(places))
		err = find_requests(client, wanted, places, ret_requests, why);
	json_decref(places);
	/* an older schema without the ledger */
	if (err == NO_SUCH_TABLE)
		err = 0;
	if (!err && !*ret_requests)
		*ret_requests = json_array();
	json_array_foreach (*ret_requests, i, request) {
		if (!err && i < REQUESTS_DETAILED)
			err = look_around(client, second, request, why);
	}
	return err;
}

void ledger_name_spans(const json_t *requests, json_t *spans)
{
	const json_t *request;
	json_t *span;
	size_t i, j;

	json_array_foreach (spans, i, span) {
		json_array_foreach (requests, j, request) {
			if (!strcmp(explain_text(span, "kind"), "server") &&
			    !strcmp(explain_text(request, "span_id"),
				    explain_text(span, "span_id")))
				json_object_set(span, "request_id",
						json_object_get(request, "request_id"));
		}
	}
}
