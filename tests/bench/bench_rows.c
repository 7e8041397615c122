// SPDX-License-Identifier: Apache-2.0
/*
 * Rows per second on a core, from ring-buffer record to bytes of an HTTP body: enrichment, row,
 * JSON. Prints the median of several runs. Part of `make bench`. With the number of runs as
 * argument, for a count of instructions:
 * `valgrind --tool=callgrind build/tests/bench/bench_rows 1`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/handoff.h"
#include "rows/enrich.h"
#include "rows/identities.h"
#include "rows/services.h"
#include "pipeline/json.h"
#include "base/clock.h"
#include "trackers/tracker.h"

extern const struct tracker handoff_tracker;

enum { ROWS = 500000, RUNS = 7 };

static double run_once(void)
{
	const struct tracker *t = &handoff_tracker;
	struct handoff_event event = { .header = { .cgroup_id = 4711, .comm = "gunicorn" },
				       .peer_ip = { [10] = 0xff, 0xff, 10, 1, 2, 3 } };
	_Alignas(16) char row[TRACKER_ROW_MAX];
	struct buffer body = { 0 };
	struct row_context context = { 0 };
	uint64_t begin = clock_monotonic_ns();

	for (uint32_t i = 0; i < ROWS; i++) {
		event.header.start_ns = begin + i;
		event.header.end_ns = begin + 1000ULL * i;
		event.header.pid = event.header.host_pid = 4242;
		event.header.tid = event.header.host_tid = 4242 + i % 16;
		event.handoff_ns = 1000ULL * i;
		event.peer_port = (uint16_t)i;
		memset(row, 0, t->row_size);
		memcpy(row + t->event_offset, &event, sizeof(event));
		enrich_event(&context, &event.header, (struct row_common *)row);
		if (json_append_row(&body, &t->table, row, false))
			abort();
		if (body.len > 8 << 20) /* like a closed batch */
			body.len = 0;
	}
	buffer_free(&body);
	return ROWS / ((double)(clock_monotonic_ns() - begin) / 1e9);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int runs = argc > 1 ? atoi(argv[1]) : RUNS;
	double rates[RUNS];

	if (runs < 1 || runs > RUNS)
		return 2;
	clock_calibrate();
	enrich_init("bench", NULL);
	for (int i = 0; i < runs; i++)
		rates[i] = run_once();
	qsort(rates, (size_t)runs, sizeof(rates[0]), compare);
	printf("%.0f\n", rates[runs / 2]);
	services_free();
	identities_free();
	return 0;
}
