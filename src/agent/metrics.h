/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP endpoint at metrics.listen, if configured: GET /metrics for Prometheus; GET /healthz: 200,
 * or 503 with the reason; GET /livez: the same without delivery, for liveness probes. Served by the
 * collector thread between rounds of its loop, without locks.
 */
#ifndef UNDERSPAN_AGENT_METRICS_H
#define UNDERSPAN_AGENT_METRICS_H

#include "agent/subjects.h"
#include "base/config.h"

extern const struct option_table metrics_options;

/* Reads the counts from `subjects`, which is borrowed. 0 also without metrics.listen. */
int metrics_start(const struct subjects *subjects, struct why *why);

/* The options alone; opens nothing. */
int metrics_check(struct why *why);

/* Readable when metrics_run() has work; -1: never. */
int metrics_fd(void);
void metrics_run(void);
/* Several times a second: makes room where slow clients have all connections. */
void metrics_tick(void);
void metrics_stop(void);

#endif
