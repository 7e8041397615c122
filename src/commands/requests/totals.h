/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of ebpf_request in memory, for `underspan requests -p`: the slowest, and sums by endpoint
 * and by listener, like the queries of sql/requests/. Bounded: excess rows are counted.
 */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_TOTALS_H
#define UNDERSPAN_COMMANDS_REQUESTS_TOTALS_H

#include "base/hash.h"
#include "commands/requests/listeners.h"
#include "commands/request_parts.h"
#include "commands/report.h"
#include "rows/column.h"

struct request_sample {
	uint64_t server_ns;
	uint64_t weight; /* in thousandths */
};

struct request_endpoint {
	double requests, server_sum_ns, hidden_ns;
	double parts_ns[REQUEST_PARTS], unmeasured[REQUEST_PARTS];
	uint64_t rows, max_ns;
	struct request_sample *samples;
	size_t n_samples, samples_capacity;
	char method[32], path[300];
	uint16_t port;
	UT_hash_handle hh;
	char key[];
};

/* The slowest rows: a heap, the fastest first. */
struct request_kept {
	double order;
	char *json;
};

struct request_reason {
	char name[64];
	double requests;
};

struct request_totals {
	const struct request_question *question;
	struct request_endpoint *endpoints; /* uthash */
	struct request_listener *listeners; /* uthash */
	struct request_kept *kept;
	size_t n_kept, kept_capacity, n_samples;
	struct request_reason reasons[32];
	size_t n_reasons;
	double requests;
	uint64_t rows;
	uint64_t left_out; /* rows without a place: in no list */
	bool failed;	   /* out of memory */
};

/* Ignores rows of further tables. */
void request_totals_row(struct request_totals *totals, const struct table *table, const void *row);

/* `seconds`: time measured. The report has no window. */
json_t *request_totals_report(struct request_totals *totals, double seconds);

void request_totals_free(struct request_totals *totals);

#endif
