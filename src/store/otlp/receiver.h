/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP/HTTP: POST /v1/traces becomes rows of otel_traces, so that a service's exporter writes into
 * the store without a collector. A request is stored as one block. A client that repeats equal
 * bytes (after a lost answer) adds no rows: the table recognizes a repeated block among the last
 * 10,000 (per partition). Requests split or ordered differently are new blocks.
 */
#ifndef UNDERSPAN_STORE_OTLP_RECEIVER_H
#define UNDERSPAN_STORE_OTLP_RECEIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "store/engine.h"

#define OTLP_DEFAULT_ADDRESS "127.0.0.1:4318"

struct otlp_options {
	struct engine *engine;
	int listen_fd;	      /* the receiver takes ownership */
	const char *password; /* NULL: clients need none (loopback) */
	uint64_t max_connections;
	uint64_t client_timeout_ns;
};

struct otlp_receiver;

/* Creates missing tables of spans, then serves on separate threads. */
int otlp_start(const struct otlp_options *options, struct otlp_receiver **ret_receiver,
	       struct why *why);

/* Waits up to `grace_ns` for running requests. False: some did not end; receiver and engine must
 * not be freed. `receiver` may be NULL. */
bool otlp_stop(struct otlp_receiver *receiver, uint64_t grace_ns);

#endif
