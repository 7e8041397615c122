/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners of requests in memory: arrivals, service time, threads. As sql/requests/listeners.sql.
 */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_LISTENERS_H
#define UNDERSPAN_COMMANDS_REQUESTS_LISTENERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

enum { ARRIVAL_SECONDS = 4096, LISTENERS_MAX = 200, LISTENER_THREADS_MAX = 20000 };

/* Data of a request for the sums of a listener. */
struct request_served {
	const char *host, *container_id, *comm;
	uint32_t netns, host_pid, tid;
	uint16_t port;
	bool is_unix, on_loop, first_of_connection;
	uint64_t connection; /* hash of thread, peer and descriptor */
	double weight;
	uint64_t service_ns, waited_ns;
	uint64_t arrival_s, end_minute;
	int64_t queue_depth; /* -1: not measured */
};

struct request_set_item {
	uint64_t key;
	UT_hash_handle hh;
};

struct request_listener {
	double requests, on_loops, service_sum_ns, waited_sum_ns, peak;
	double arrivals[ARRIVAL_SECONDS]; /* by second, modulo */
	uint64_t seconds[ARRIVAL_SECONDS];
	/* of the minute in `minute`; then of all minutes */
	struct request_set_item *threads, *connections;
	uint64_t minute, firsts;
	uint64_t max_threads, thread_minutes, connection_minutes;
	int64_t max_queue_depth;
	char host[256], container_id[80], comm[64];
	uint32_t netns;
	uint16_t port;
	bool is_unix;
	UT_hash_handle hh;
	char key[];
};

/* False: no place, or out of memory. */
bool request_listener_add(struct request_listener **listeners, const struct request_served *r);

/* The columns of sql/requests/listeners.sql. */
json_t *request_listener_json(struct request_listener *listener);

void request_listeners_free(struct request_listener **listeners);

#endif
