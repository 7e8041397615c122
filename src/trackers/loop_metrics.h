/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event loops at /metrics: time since the last poll and stalls, by service. Collector thread only.
 */
#ifndef UNDERSPAN_TRACKERS_LOOP_METRICS_H
#define UNDERSPAN_TRACKERS_LOOP_METRICS_H

#include "base/exposition.h"
#include "events/loop_stall.h"
#include "rows/row.h"

/* A stall that is a row. */
void loop_metrics_add_row(const struct row_common *common, const struct loop_stall_event *event);

/* `threads`: the map of struct loop_thread. */
void loop_metrics_expose(struct exposition *to, int threads);
void loop_metrics_stop(void);

#endif
