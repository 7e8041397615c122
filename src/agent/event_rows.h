/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes rows of events for the pipeline. A row with pending look-ups (names, code locations;
 * readers.h) is deferred while other rows pass, for at most two seconds and within a memory budget;
 * then sent with placeholders, which are counted.
 */
#ifndef UNDERSPAN_AGENT_EVENT_ROWS_H
#define UNDERSPAN_AGENT_EVENT_ROWS_H

#include "agent/agent_tables.h"
#include "pipeline/pipeline.h"
#include "trackers/trackers.h"

enum { ROWS_ANSWERED_MAX = 32 };

/* Counters of a table's rows with placeholders. */
struct rows_lacking {
	uint64_t gone, unread, unnamed;
};

/* Thread: the collector. Members are for rows.c, but `lacking`, by handle of the pipeline. */
struct rows {
	struct tracker_set *set;
	struct pipeline *pipeline;
	struct rows_lacking lacking[AGENT_TABLES_MAX];
	struct waiting *first, **last; /* deferred rows */
	size_t waiting_bytes;
	/* processes with new look-up results since the last check of deferred rows */
	uint32_t answered_pids[ROWS_ANSWERED_MAX];
	size_t n_answered;
};

/* Borrows both; to be called before the first event. */
void rows_start(struct rows *rows, struct tracker_set *set, struct pipeline *pipeline);

/* A tracker_on_event; `context`: the struct rows. */
void rows_on_event(void *context, struct running_tracker *running, const void *event, size_t size);

/* A row made by the tracker at `index` of the set, for tracker_output.add. */
void rows_add(struct rows *rows, size_t index, const struct tracker_row *row);

/* Collects results of look-ups; sends deferred rows that are complete or timed out. To be called
 * often. */
void rows_tick(struct rows *rows);

/* After the last event: waits briefly for look-ups, then sends all rows. */
void rows_finish(struct rows *rows);

#endif
