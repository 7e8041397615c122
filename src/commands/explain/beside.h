/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about a request that a second thread asks, over a connection of its own, while the
 * caller asks others: most of a question's time is the server's planning, or the network's.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_BESIDE_H
#define UNDERSPAN_COMMANDS_EXPLAIN_BESIDE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "clickhouse/client.h"

/* A question for explain_attach(). */
struct question {
	const char *key, *file;
	int64_t from_us, to_us;
};

enum { BESIDE_MAX = 16 };

/* Answers go to an object of the thread's own: jansson's objects are not for two threads. */
struct beside {
	struct clickhouse_client *client;
	json_t *of, *into;
	struct question questions[BESIDE_MAX];
	size_t n;
	pthread_t thread;
	bool runs;
	int err;
	struct why why;
};

/* Adds a question; at most BESIDE_MAX. Before beside_begin(). */
void beside_add(struct beside *b, const char *key, const char *file, int64_t from_us,
		int64_t to_us);

/*
 * Begins to ask about `of`, which is copied: the caller may add to it. `second`: a client that no
 * other thread uses until beside_end(); NULL: beside_end() asks.
 */
void beside_begin(struct beside *b, const json_t *of, struct clickhouse_client *second);

/* Waits for the answers and attaches them to `into`; `client`: for what was not begun. */
int beside_end(struct beside *b, json_t *into, struct clickhouse_client *client, struct why *why);

#endif
