/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request ledger at /metrics: histograms of requests by service, port and status, and of parts;
 * requests being served and waiting at the moment. Counts and sums equal ebpf_request_profile up to
 * the last complete interval. Collector thread only.
 */
#ifndef UNDERSPAN_TRACKERS_REQUEST_METRICS_H
#define UNDERSPAN_TRACKERS_REQUEST_METRICS_H

#include "base/exposition.h"
#include "events/request.h"
#include "rows/row.h"
#include "trackers/sched.h"

/* Order of the names: enum request_part, bits of enum request_lack. */
void request_metrics_start(const struct sched_sums *sums,
			   const char *const lack_names[REQUEST_LACKS]);
void request_metrics_stop(void);

/* A change of `request.min_duration_us`: all requests of this duration are rows. */
void request_metrics_every_from(uint64_t min_ns);

/* A request that is a row. */
void request_metrics_add_row(const struct row_common *common, const struct request_event *event);

/* Sums of a completed interval; then, after the last sum of the interval. */
void request_metrics_add_sum(const struct request_profile_key *key,
			     const struct request_profile *profile);
void request_metrics_publish(uint32_t side);

void request_metrics_expose(struct exposition *to);

/* ---- request_live.c ---- */

/* Present activity of the server of a port. */
struct request_live {
	uint32_t host_pid; /* any of the server's processes; 0: only the listener is known */
	uint32_t netns;
	uint16_t port;
	uint64_t open, busy, waiting; /* requests, threads, connections with a request to be read */
};

enum { REQUEST_LIVE_MAX = 4096 };

/* Returns the number of entries in *ret (to be freed), or -errno. */
int request_live_read(struct request_live **ret);
void request_live_start(struct sched_bpf *skeleton);

/* Members of the tracker, see tracker.h. */
void request_take_out(void);
uint64_t request_put_back(void);

#endif
