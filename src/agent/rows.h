/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes rows of events for the pipeline. A row with pending look-ups (names, code locations;
 * readers.h) is deferred while other rows pass, for at most two seconds and within a memory budget;
 * then sent with placeholders, which are counted.
 */
#ifndef UNDERSPAN_AGENT_ROWS_H
#define UNDERSPAN_AGENT_ROWS_H

#include "pipeline/pipeline.h"
#include "trackers/trackers.h"

/* Counters of a table's rows with placeholders. */
struct rows_lacking {
	uint64_t gone, unread, unnamed;
};

/* Borrows both; to be called before the first event. */
void rows_start(struct tracker_set *set, struct pipeline *pipeline);

/* A tracker_on_event. */
void rows_on_event(struct running_tracker *running, const void *event, size_t size);

/* A row made by a tracker, for tracker_output.add. */
void rows_add(const struct tracker_output *output, const struct tracker_row *row);

/* Collects results of look-ups; sends deferred rows that are complete or timed out. To be called
 * often. */
void rows_tick(void);

/* After the last event: waits briefly for look-ups, then sends all rows. */
void rows_finish(void);

/* `table`: a handle of the pipeline. */
const struct rows_lacking *rows_lacking(size_t table);

#endif
