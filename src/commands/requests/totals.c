// SPDX-License-Identifier: Apache-2.0
/* Requests in memory. See totals.h. */
#include "commands/requests/totals.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/util.h"
#include "commands/requests/endpoint.h"
#include "pipeline/json.h"
#include "rows/row.h"

enum { ENDPOINTS_MAX = 20000, SAMPLES_MAX = 1000000 };

/* The members of a row that the sums need. */
struct served {
	const struct table *table;
	const void *row;
	const struct row_common *common;
	uint64_t parts_ns[REQUEST_PARTS];
	bool known[REQUEST_PARTS];
	uint64_t server_ns;
	double hidden_ns, weight;
};

static uint64_t number(const struct served *s, const char *name)
{
	return column_uint(column_find(s->table, name), s->row);
}

static const char *text(const struct served *s, const char *name, char *buf, size_t size)
{
	return column_text(column_find(s->table, name), s->row, buf, size);
}

static uint64_t part(const struct served *s, const char *name)
{
	for (int i = 0; i < REQUEST_PARTS; i++) {
		if (!strcmp(request_parts[i].name, name))
			return s->parts_ns[i];
	}
	return 0;
}

static struct served served_of(const struct table *table, const void *row)
{
	struct served s = { .table = table, .row = row, .common = row };

	s.weight = (double)s.common->weight;
	for (int i = 0; i < REQUEST_PARTS; i++) {
		const struct column *column;
		char name[32];

		snprintf(name, sizeof(name), "%s_ns", request_parts[i].name);
		column = column_find(table, name);
		s.known[i] = column_is_known(column, row);
		s.parts_ns[i] = column_uint(column, row);
		if (request_parts[i].hidden)
			s.hidden_ns += (double)s.parts_ns[i];
	}
	s.server_ns = s.common->duration_ns - part(&s, "client_wait") - part(&s, "client_slow");
	return s;
}

/* ---- endpoints ---- */

static struct request_endpoint *endpoint_of(struct request_totals *totals, const struct served *s)
{
	char path[300], endpoint[300], method[32], key[400];
	uint16_t port = (uint16_t)number(s, "server_port");
	struct request_endpoint *e;
	size_t len;

	text(s, "path", path, sizeof(path));
	request_endpoint(endpoint, sizeof(endpoint), path);
	text(s, "method", method, sizeof(method));
	len = (size_t)snprintf(key, sizeof(key), "%s\t%u\t%s", method, port, endpoint);
	HASH_FIND(hh, totals->endpoints, key, len, e);
	if (e || HASH_COUNT(totals->endpoints) >= ENDPOINTS_MAX)
		return e;
	e = calloc(1, sizeof(*e) + len + 1);
	if (!e)
		return NULL;
	memcpy(e->key, key, len + 1);
	memcpy(e->method, method, sizeof(e->method));
	memcpy(e->path, endpoint, sizeof(e->path));
	e->port = port;
	HASH_ADD_KEYPTR(hh, totals->endpoints, e->key, len, e);
	return e;
}

static bool add_sample(struct request_totals *totals, struct request_endpoint *e,
		       const struct served *s)
{
	if (totals->n_samples >= SAMPLES_MAX)
		return false;
	if (e->n_samples == e->samples_capacity) {
		size_t capacity = e->samples_capacity ? 2 * e->samples_capacity : 8;
		struct request_sample *grown = realloc(e->samples, capacity * sizeof(*grown));

		if (!grown)
			return false;
		e->samples = grown;
		e->samples_capacity = capacity;
	}
	e->samples[e->n_samples++] = (struct request_sample){ s->server_ns,
							      (uint64_t)llround(s->weight * 1000) };
	totals->n_samples++;
	return true;
}

static bool add_to_endpoint(struct request_totals *totals, const struct served *s)
{
	struct request_endpoint *e = endpoint_of(totals, s);

	if (!e || !add_sample(totals, e, s))
		return false;
	e->rows++;
	e->requests += s->weight;
	e->server_sum_ns += (double)s->server_ns * s->weight;
	e->hidden_ns += s->hidden_ns * s->weight;
	if (s->server_ns > e->max_ns)
		e->max_ns = s->server_ns;
	for (int i = 0; i < REQUEST_PARTS; i++) {
		e->parts_ns[i] += (double)s->parts_ns[i] * s->weight;
		if (!s->known[i])
			e->unmeasured[i] += s->weight;
	}
	return true;
}

/* ---- listeners ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) /* FNV-1a */
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ULL;
	return hash;
}

static uint64_t connection_of(const struct served *s)
{
	const struct column *ip = column_find(s->table, "peer_ip");
	uint64_t ids[] = { s->common->host_pid, s->common->tid, number(s, "peer_port"),
			   number(s, "fd") };
	uint64_t hash = hash_bytes(0xcbf29ce484222325ULL, ids, sizeof(ids));

	return ip ? hash_bytes(hash, (const char *)s->row + ip->offset, ip->size) : hash;
}

static bool add_to_listener(struct request_totals *totals, const struct served *s)
{
	char family[16], model[16], comm[EVENT_COMM_LEN + 1];
	const struct column *depth = column_find(s->table, "queue_depth");
	uint64_t waited = part(s, "accept_queue") + part(s, "queue") + part(s, "pool_wait");
	uint64_t client = part(s, "client_wait");
	uint64_t arrival = s->common->start_ns + (client ? part(s, "accept_queue") + client : 0);
	struct request_served r = {
		.host = s->common->host ?: "",
		.container_id = s->common->container_id ?: "",
		.comm = comm,
		.netns = (uint32_t)number(s, "netns"),
		.host_pid = s->common->host_pid,
		.tid = s->common->tid,
		.port = (uint16_t)number(s, "server_port"),
		.is_unix = !strcmp(text(s, "family", family, sizeof(family)), "unix"),
		.on_loop = !strcmp(text(s, "model", model, sizeof(model)), "loop"),
		.first_of_connection = number(s, "connection_request") == 1,
		.connection = connection_of(s),
		.weight = s->weight,
		.service_ns = s->common->duration_ns - client - waited,
		.waited_ns = waited,
		.arrival_s = clock_wall_us(arrival) / 1000000,
		.end_minute = clock_wall_us(s->common->end_ns) / 60000000,
		.queue_depth = column_is_known(depth, s->row) ? (int64_t)column_uint(depth, s->row)
							      : -1,
	};

	snprintf(comm, sizeof(comm), "%.*s", EVENT_COMM_LEN, s->common->comm);
	return request_listener_add(&totals->listeners, &r);
}

/* ---- the slowest ---- */

/* The row as JSON; request_id, a full UInt64, as text. Heap; NULL: out of memory. */
static char *json_text(const struct served *s)
{
	static const char name[] = "\"request_id\":";
	struct buffer b = { 0 };
	char *id, *json = NULL;
	size_t digits;

	if (json_append_row(&b, s->table, s->row, false) || buffer_append(&b, "", 1)) {
		buffer_free(&b);
		return NULL;
	}
	id = strstr(b.data, name); /* a quote in a text is escaped */
	id = id ? id + strlen(name) : b.data;
	digits = strspn(id, "0123456789");
	if (asprintf(&json, digits ? "%.*s\"%.*s\"%s" : "%.*s%.*s%s", (int)(id - b.data), b.data,
		     (int)digits, id, id + digits) < 0)
		json = NULL;
	buffer_free(&b);
	return json;
}

static void swap(struct request_kept *a, struct request_kept *b)
{
	struct request_kept kept = *a;

	*a = *b;
	*b = kept;
}

static void sink_first(struct request_totals *totals)
{
	struct request_kept *kept = totals->kept;

	for (size_t i = 0, child; (child = 2 * i + 1) < totals->n_kept; i = child) {
		if (child + 1 < totals->n_kept && kept[child + 1].order < kept[child].order)
			child++;
		if (kept[i].order <= kept[child].order)
			return;
		swap(&kept[i], &kept[child]);
	}
}

static void raise_last(struct request_totals *totals)
{
	struct request_kept *kept = totals->kept;

	for (size_t i = totals->n_kept - 1; i && kept[i].order < kept[(i - 1) / 2].order;
	     i = (i - 1) / 2)
		swap(&kept[i], &kept[(i - 1) / 2]);
}

static void keep(struct request_totals *totals, const struct served *s)
{
	int by = totals->question->part;
	double order = by < 0 ? (double)s->server_ns : (double)s->parts_ns[by];
	char *json;

	if (!totals->kept)
		totals->kept = calloc(totals->question->top, sizeof(*totals->kept));
	if (order <= 0 || !totals->kept)
		return;
	if (totals->n_kept == totals->question->top && order <= totals->kept[0].order)
		return;
	json = json_text(s);
	if (!json) {
		totals->failed = true;
		return;
	}
	if (totals->n_kept < totals->question->top) {
		totals->kept[totals->n_kept++] = (struct request_kept){ order, json };
		raise_last(totals);
		return;
	}
	free(totals->kept[0].json);
	totals->kept[0] = (struct request_kept){ order, json };
	sink_first(totals);
}

/* ---- rows ---- */

static void add_reasons(struct request_totals *totals, const struct served *s)
{
	struct column_strings reasons = column_strings(column_find(s->table, "not_measured"),
						       s->row);

	for (size_t k = 0; k < reasons.n; k++) {
		size_t i = 0;

		while (i < totals->n_reasons &&
		       strcmp(totals->reasons[i].name, reasons.items[k]) != 0)
			i++;
		if (i == ARRAY_SIZE(totals->reasons))
			continue;
		if (i == totals->n_reasons)
			snprintf(totals->reasons[totals->n_reasons++].name,
				 sizeof(totals->reasons[0].name), "%s", reasons.items[k]);
		totals->reasons[i].requests += s->weight;
	}
}

static bool is_asked_for(const struct request_question *q, const struct served *s)
{
	char path[300];

	if (!q->path)
		return true;
	text(s, "path", path, sizeof(path));
	return !strncmp(path, q->path, strlen(q->path));
}

void request_totals_row(struct request_totals *totals, const struct table *table, const void *row)
{
	struct served s;

	if (strcmp(table->name, "ebpf_request") != 0)
		return;
	s = served_of(table, row);
	if (!is_asked_for(totals->question, &s))
		return;
	totals->rows++;
	totals->requests += s.weight;
	add_reasons(totals, &s);
	keep(totals, &s);
	if (!add_to_endpoint(totals, &s) || !add_to_listener(totals, &s))
		totals->left_out++;
}

/* ---- the report ---- */

static int by_server_ns(const void *a, const void *b)
{
	const struct request_sample *x = a, *y = b;

	return x->server_ns < y->server_ns ? -1 : x->server_ns > y->server_ns;
}

/* As quantileExactWeighted(); of sorted samples. */
static uint64_t quantile_ns(const struct request_endpoint *e, double level)
{
	double whole = 0, threshold, seen = 0;

	for (size_t i = 0; i < e->n_samples; i++)
		whole += (double)e->samples[i].weight;
	threshold = ceil(whole * level);
	for (size_t i = 0; i < e->n_samples; i++) {
		seen += (double)e->samples[i].weight;
		if (seen >= threshold)
			return e->samples[i].server_ns;
	}
	return 0;
}

static double order_of(const struct request_endpoint *e, int by)
{
	return by < 0 ? e->hidden_ns : e->parts_ns[by];
}

/* 0 of the part; not measured is not 0 */
static bool has_nothing(const struct request_endpoint *e, int by)
{
	return by >= 0 && e->parts_ns[by] <= 0 && e->unmeasured[by] < e->requests;
}

static int order_by; /* the question's part, while endpoints are sorted */

static int most_first(const struct request_endpoint *a, const struct request_endpoint *b)
{
	double x = order_of(a, order_by), y = order_of(b, order_by);

	if (x == y) {
		x = a->server_sum_ns;
		y = b->server_sum_ns;
	}
	return x < y ? 1 : x > y ? -1 : strcmp(a->key, b->key);
}

static json_t *endpoint_json(struct request_endpoint *e)
{
	json_t *row;
	char name[48];

	qsort(e->samples, e->n_samples, sizeof(e->samples[0]), by_server_ns);
	row = json_pack(
		"{s:s, s:o, s:I, s:f, s:I, s:f, s:I, s:I, s:I, s:f}", "method", e->method,
		"endpoint", json_string(e->path) ?: json_string("(a path that is not UTF-8)"),
		"server_port", (json_int_t)e->port, "requests", e->requests, "row_count",
		(json_int_t)e->rows, "server_sum_ns", e->server_sum_ns, "server_p50_ns",
		(json_int_t)quantile_ns(e, 0.5), "server_p99_ns", (json_int_t)quantile_ns(e, 0.99),
		"server_max_ns", (json_int_t)e->max_ns, "hidden_ns", e->hidden_ns);
	for (int i = 0; i < REQUEST_PARTS; i++) {
		bool known = e->unmeasured[i] < e->requests;

		snprintf(name, sizeof(name), "%s_ns", request_parts[i].name);
		json_object_set_new(row, name, known ? json_real(e->parts_ns[i]) : json_null());
		if (!request_parts[i].may_be_null)
			continue;
		snprintf(name, sizeof(name), "%s_unmeasured", request_parts[i].name);
		json_object_set_new(row, name, json_real(e->unmeasured[i]));
	}
	return row;
}

static json_t *endpoints_json(struct request_totals *totals, size_t *ret_n)
{
	json_t *rows = json_array();
	size_t n = 0;

	order_by = totals->question->part;
	HASH_SRT(hh, totals->endpoints, most_first);
	for (struct request_endpoint *e = totals->endpoints; e; e = e->hh.next) {
		if (has_nothing(e, order_by))
			continue;
		if (n++ < totals->question->top)
			json_array_append_new(rows, endpoint_json(e));
	}
	*ret_n = n;
	return rows;
}

static int largest_first(const void *a, const void *b)
{
	const struct request_kept *x = a, *y = b;

	return x->order < y->order ? 1 : x->order > y->order ? -1 : 0;
}

/* Times as in sql/requests/slowest.sql: start_us, end_us. */
static json_t *slowest_json(struct request_totals *totals)
{
	json_t *rows = json_array();

	qsort(totals->kept, totals->n_kept, sizeof(totals->kept[0]), largest_first);
	for (size_t i = 0; i < totals->n_kept; i++) {
		json_t *row = json_loads(totals->kept[i].json, 0, NULL);

		json_object_set(row, "start_us", json_object_get(row, "start_time"));
		json_object_set(row, "end_us", json_object_get(row, "end_time"));
		json_object_del(row, "start_time");
		json_object_del(row, "end_time");
		json_array_append_new(rows, row);
	}
	return rows;
}

json_t *request_totals_report(struct request_totals *totals, double seconds)
{
	size_t n_endpoints;
	json_t *endpoints = endpoints_json(totals, &n_endpoints);
	json_t *report = json_pack(
		"{s:f, s:I, s:I, s:o, s:o, s:[], s:[], s:[]}", "requests", totals->requests, "rows",
		(json_int_t)totals->rows, "endpoints_total", (json_int_t)n_endpoints, "slowest",
		slowest_json(totals), "endpoints", endpoints, "listeners", "not_measured", "notes");

	for (size_t i = 0; i < totals->n_reasons; i++)
		report_add_reason(report, totals->reasons[i].name, totals->reasons[i].requests);
	for (struct request_listener *l = totals->listeners; l && !totals->question->path;
	     l = l->hh.next)
		report_add_listener(report, request_listener_json(l), seconds);
	if (totals->left_out)
		report_add_note(report,
				"%llu row%s had no place in memory: endpoints and listeners are "
				"without %s",
				(unsigned long long)totals->left_out, plural(totals->left_out),
				counted(totals->left_out, "it", "them"));
	return report;
}

void request_totals_free(struct request_totals *totals)
{
	struct request_endpoint *e, *next;

	HASH_ITER(hh, totals->endpoints, e, next)
	{
		HASH_DEL(totals->endpoints, e);
		free(e->samples);
		free(e);
	}
	request_listeners_free(&totals->listeners);
	for (size_t i = 0; i < totals->n_kept; i++)
		free(totals->kept[i].json);
	free(totals->kept);
	*totals = (struct request_totals){ 0 };
}
