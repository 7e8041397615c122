/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event becomes a row and goes into the pipeline. A row with a name or a place in the code that
 * is still being read (readers.h) waits for the answer while the others pass it, for two seconds
 * at most, and within a budget of memory; then it goes out without it, which is counted.
 */
#ifndef UNDERSPAN_AGENT_ROWS_H
#define UNDERSPAN_AGENT_ROWS_H

#include "pipeline/pipeline.h"
#include "trackers/trackers.h"

/* How many rows of a table went without something. */
struct rows_lacking {
	uint64_t gone, unread, unnamed;
};

/* Both are borrowed; before the first event. */
void rows_start(struct tracker_set *set, struct pipeline *pipeline);

/* A tracker_on_event; `context` is nobody. */
void rows_on_event(size_t index, const void *event, size_t size, void *context);

/* A tracker's own row, for tracker_output.add. */
void rows_add(const struct tracker_output *output, const struct tracker_row *row);

/* Takes what was read, and sends the rows that waited for it, or waited too long. Often. */
void rows_tick(void);

/* There are no more events: waits a moment for what is being read, and sends all rows. */
void rows_finish(void);

/* `table`: the pipeline's. */
const struct rows_lacking *rows_lacking(size_t table);

#endif
