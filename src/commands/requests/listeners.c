// SPDX-License-Identifier: Apache-2.0
/* Listeners of requests in memory. See listeners.h. */
#include "commands/requests/listeners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* ---- sets of a minute ---- */

static bool set_add(struct request_set_item **set, uint64_t key)
{
	struct request_set_item *item;

	HASH_FIND(hh, *set, &key, sizeof(key), item);
	if (item)
		return true;
	if (HASH_COUNT(*set) >= LISTENER_THREADS_MAX)
		return false;
	item = calloc(1, sizeof(*item));
	if (!item)
		return false;
	item->key = key;
	HASH_ADD(hh, *set, key, sizeof(item->key), item);
	return true;
}

static void set_clear(struct request_set_item **set)
{
	struct request_set_item *item, *next;

	HASH_ITER(hh, *set, item, next)
	{
		HASH_DEL(*set, item);
		free(item);
	}
}

static void end_minute(struct request_listener *l)
{
	uint64_t threads = HASH_COUNT(l->threads), connections = HASH_COUNT(l->connections);

	if (threads > l->max_threads)
		l->max_threads = threads;
	l->thread_minutes += threads;
	l->connection_minutes += connections > l->firsts ? connections : l->firsts;
	l->firsts = 0;
	set_clear(&l->threads);
	set_clear(&l->connections);
}

/* ---- sums ---- */

static void add_arrival(struct request_listener *l, uint64_t second, double weight)
{
	size_t i = second % ARRIVAL_SECONDS;

	if (l->seconds[i] != second) {
		l->seconds[i] = second;
		l->arrivals[i] = 0;
	}
	l->arrivals[i] += weight;
	if (l->arrivals[i] > l->peak)
		l->peak = l->arrivals[i];
}

static struct request_listener *listener_of(struct request_listener **listeners,
					    const struct request_served *r)
{
	struct request_listener *l;
	char key[512];
	size_t len;

	snprintf(key, sizeof(key), "%s\t%.80s\t%u\t%d\t%u\t%.64s", r->host, r->container_id,
		 r->netns, r->is_unix, r->port, r->comm);
	len = strlen(key);
	HASH_FIND(hh, *listeners, key, len, l);
	if (l || HASH_COUNT(*listeners) >= LISTENERS_MAX)
		return l;
	l = calloc(1, sizeof(*l) + len + 1);
	if (!l)
		return NULL;
	memcpy(l->key, key, len + 1);
	snprintf(l->host, sizeof(l->host), "%s", r->host);
	snprintf(l->container_id, sizeof(l->container_id), "%s", r->container_id);
	snprintf(l->comm, sizeof(l->comm), "%s", r->comm);
	l->netns = r->netns;
	l->port = r->port;
	l->is_unix = r->is_unix;
	l->max_queue_depth = -1;
	HASH_ADD_KEYPTR(hh, *listeners, l->key, len, l);
	return l;
}

bool request_listener_add(struct request_listener **listeners, const struct request_served *r)
{
	struct request_listener *l = listener_of(listeners, r);

	if (!l)
		return false;
	if (r->queue_depth > l->max_queue_depth)
		l->max_queue_depth = r->queue_depth;
	if (r->on_loop) {
		l->on_loops += r->weight;
		return true;
	}
	if (r->end_minute > l->minute) { /* late rows count to this minute */
		end_minute(l);
		l->minute = r->end_minute;
	}
	l->requests += r->weight;
	l->service_sum_ns += (double)r->service_ns * r->weight;
	l->waited_sum_ns += (double)r->waited_ns * r->weight;
	l->firsts += r->first_of_connection;
	add_arrival(l, r->arrival_s, r->weight);
	return set_add(&l->threads, (uint64_t)r->host_pid << 32 | r->tid) &&
	       set_add(&l->connections, r->connection);
}

json_t *request_listener_json(struct request_listener *l)
{
	end_minute(l);
	return json_pack(
		"{s:s, s:s, s:I, s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:o}",
		"host", l->host, "container_id", l->container_id, "netns", (json_int_t)l->netns,
		"kind", l->is_unix ? "unix" : "tcp", "server_port", (json_int_t)l->port, "comm",
		l->comm, "requests", l->requests, "on_loops", l->on_loops, "service_sum_ns",
		l->service_sum_ns, "waited_sum_ns", l->waited_sum_ns, "threads",
		(json_int_t)l->max_threads, "thread_minutes", (json_int_t)l->thread_minutes,
		"connections", (json_int_t)l->connection_minutes, "peak_arrivals", l->peak,
		"max_queue_depth",
		l->max_queue_depth < 0 ? json_null() : json_integer(l->max_queue_depth));
}

void request_listeners_free(struct request_listener **listeners)
{
	struct request_listener *l, *next;

	HASH_ITER(hh, *listeners, l, next)
	{
		set_clear(&l->threads);
		set_clear(&l->connections);
		HASH_DEL(*listeners, l);
		free(l);
	}
}
