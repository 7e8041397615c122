/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From rows to a sink. The collector adds rows; a batch is closed by its rows, bytes or age. The
 * writer thread seals batches and writes them to the spool. The sender thread sends them, with
 * retries, in order per table. Memory and spool are bounded; rows over the limits are dropped and
 * counted (counts.h).
 */
#ifndef UNDERSPAN_PIPELINE_PIPELINE_H
#define UNDERSPAN_PIPELINE_PIPELINE_H

#include "pipeline/counts.h"
#include "pipeline/limits.h"
#include "pipeline/sink/sink.h"

struct pipeline;

/*
 * Takes ownership of the sink on success. `tables` is borrowed. Opens the spool and recovers the
 * batches of earlier runs. -EBUSY: the spool is locked by another agent.
 */
int pipeline_new(const struct table *const *tables, size_t n_tables,
		 const struct pipeline_limits *limits, struct sink *sink,
		 struct pipeline **ret_pipeline, struct why *why);

/* The handle of one of the tables given to pipeline_new(). */
size_t pipeline_table(const struct pipeline *pipeline, const struct table *table);

/* Rows of higher ranks are dropped first when memory_bytes is reached; 0 at first. */
void pipeline_set_shed_rank(struct pipeline *pipeline, size_t table, unsigned int rank);

/* Collector thread only. `table`: a handle. Without memory the row is counted as dropped. */
void pipeline_add(struct pipeline *pipeline, size_t table, const void *row);

/*
 * Collector thread only: closes batches at their age limit. 0, or -EPIPE with why: the sink is
 * permanently broken.
 */
int pipeline_tick(struct pipeline *pipeline, struct why *why);

/* Collector thread only: changes the limits of batches, memory, spool size and spool age. */
void pipeline_change_limits(struct pipeline *pipeline, const struct pipeline_limits *limits);

/* Retries failed batches at once. */
void pipeline_sink_changed(struct pipeline *pipeline);

void pipeline_read_counts(struct pipeline *pipeline, size_t table, struct pipeline_counts *ret);
void pipeline_read_state(struct pipeline *pipeline, struct pipeline_state *ret);

/*
 * Closes all batches and stops the sender by `deadline_ns` (CLOCK_MONOTONIC). Spooled batches wait
 * for the next start. 0, or -EIO with why: rows were lost in this run. To be followed by
 * pipeline_free().
 */
int pipeline_finish(struct pipeline *pipeline, uint64_t deadline_ns, struct why *why);
/* False: a thread is held up by a call that does not return; its data are not freed. */
bool pipeline_free(struct pipeline *pipeline);

#endif
