// SPDX-License-Identifier: Apache-2.0
/* Choice of the server for the next batch. See endpoints.h. */
#include "pipeline/sink/endpoints.h"

#include "base/log.h"
#include "pipeline/sink/retry.h"
#include "base/clock.h"

struct one_endpoint {
	struct clickhouse_client *client;
	uint64_t ready_at_ns; /* 0: not failed */
	uint64_t wait_ns;
};

struct endpoints {
	size_t n, current;
	struct one_endpoint items[CLICKHOUSE_ENDPOINTS_MAX];
};

int endpoints_new(const struct clickhouse_endpoint *endpoints, size_t n,
		  struct endpoints **ret_endpoints, struct why *why)
{
	struct endpoints *e = calloc(1, sizeof(*e));

	if (!e)
		return why_fail(why, ENOMEM, "out of memory");
	for (; e->n < n && e->n < CLICKHOUSE_ENDPOINTS_MAX; e->n++) {
		int err = clickhouse_client_new(&endpoints[e->n], &e->items[e->n].client, why);

		if (err) {
			endpoints_free(e);
			return err;
		}
	}
	*ret_endpoints = e;
	return 0;
}

void endpoints_free(struct endpoints *e)
{
	for (size_t i = 0; e && i < e->n; i++)
		clickhouse_client_free(e->items[i].client);
	free(e);
}

size_t endpoints_count(const struct endpoints *e)
{
	return e->n;
}

struct clickhouse_client *endpoints_choose(struct endpoints *e)
{
	size_t best = e->current;

	for (size_t i = 1; i < e->n; i++) {
		size_t next = (e->current + i) % e->n;

		if (e->items[next].ready_at_ns < e->items[best].ready_at_ns &&
		    e->items[best].ready_at_ns > clock_monotonic_ns())
			best = next;
	}
	if (best != e->current)
		log_info("clickhouse: from now on %s",
			 clickhouse_client_url(e->items[best].client));
	e->current = best;
	return e->items[best].client;
}

static uint64_t server_of(const struct one_endpoint *one)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (const char *p = clickhouse_client_url(one->client); *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3ULL;
	return hash ?: 1;
}

uint64_t endpoints_server(const struct endpoints *e)
{
	return server_of(&e->items[e->current]);
}

void endpoints_prefer(struct endpoints *e, uint64_t server)
{
	for (size_t i = 0; server && i < e->n; i++) {
		if (server_of(&e->items[i]) == server &&
		    e->items[i].ready_at_ns <= clock_monotonic_ns())
			e->current = i;
	}
}

void endpoints_ok(struct endpoints *e)
{
	e->items[e->current].ready_at_ns = e->items[e->current].wait_ns = 0;
}

void endpoints_failed(struct endpoints *e, uint64_t retry_after_ns)
{
	struct one_endpoint *one = &e->items[e->current];

	one->wait_ns = retry_wait(one->wait_ns, SEND_RETRY_ALL);
	one->ready_at_ns = clock_monotonic_ns() + retry_jitter(one->wait_ns, retry_after_ns);
	/* the name may now resolve to another machine */
	clickhouse_client_disconnect(one->client);
}

void endpoints_next(struct endpoints *e)
{
	uint64_t now = clock_monotonic_ns();

	for (size_t i = 1; i < e->n; i++) {
		size_t next = (e->current + i) % e->n;

		if (e->items[next].ready_at_ns > now)
			continue;
		e->current = next;
		log_info("clickhouse: from now on %s",
			 clickhouse_client_url(e->items[next].client));
		return;
	}
}

uint64_t endpoints_ready_at(const struct endpoints *e)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < e->n; i++) {
		if (e->items[i].ready_at_ns < first)
			first = e->items[i].ready_at_ns;
	}
	return first;
}

void endpoints_cancel(struct endpoints *e)
{
	for (size_t i = 0; i < e->n; i++)
		clickhouse_client_cancel(e->items[i].client);
}
