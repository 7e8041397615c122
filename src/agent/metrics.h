/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's counts for Prometheus: GET /metrics at metrics.listen, on loopback, when asked for.
 * Served by the collector itself, between two rounds of its loop: no thread, nothing to lock.
 */
#ifndef UNDERSPAN_METRICS_H
#define UNDERSPAN_METRICS_H

#include "agent/counts.h"
#include "config.h"

extern const struct option_table metrics_options;

/* Reads the counts from `subjects`, which is borrowed. 0 also when no metrics are wanted. */
int metrics_start(const struct subjects *subjects, struct why *why);

/* Readable when there is something to do for metrics_run(); -1: never. */
int metrics_fd(void);
void metrics_run(void);
void metrics_stop(void);

#endif
