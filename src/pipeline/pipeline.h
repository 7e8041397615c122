/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From rows to a sink. The collector adds rows; a table's batch is closed by its own number of
 * rows, bytes and age; the writer thread seals it and writes it to the spool; the sender thread
 * sends it, again and again if it must, each table's in order. Memory and spool are bounded; what
 * does not fit is dropped and counted (counts.h).
 */
#ifndef UNDERSPAN_PIPELINE_H
#define UNDERSPAN_PIPELINE_H

#include "config.h"
#include "pipeline/counts.h"
#include "pipeline/sink.h"
#include "pipeline/spool.h"

struct pipeline_limits {
	uint64_t batch_rows;
	uint64_t batch_bytes; /* uncompressed */
	uint64_t batch_age_ns;
	uint64_t memory_bytes;	       /* of all rows in memory, open batches and closed ones */
	struct string_list shed_first; /* trackers whose rows go first when that is reached */
	struct spool_options spool;
};

struct pipeline;

/*
 * Takes the sink over when it returns 0. `tables` is borrowed. Opens the spool and takes up what
 * an earlier run left there; -EBUSY: another agent's.
 */
int pipeline_new(const struct table *const *tables, size_t n_tables,
		 const struct pipeline_limits *limits, struct sink *sink,
		 struct pipeline **ret_pipeline, struct why *why);

/* Collector thread only. A row that finds no memory is counted as dropped. */
void pipeline_add(struct pipeline *pipeline, size_t table, const void *row);

/*
 * Collector thread only: closes the batches that are old enough. Returns 0, or -EPIPE with why
 * when the sink is broken for good.
 */
int pipeline_tick(struct pipeline *pipeline, struct why *why);

/* Collector thread only: those of batches and memory, and the spool's size and age. */
void pipeline_change_limits(struct pipeline *pipeline, const struct pipeline_limits *limits);

/* What waits after a failure is tried again at once. */
void pipeline_sink_changed(struct pipeline *pipeline);

void pipeline_read_counts(struct pipeline *pipeline, size_t table, struct pipeline_counts *ret);
void pipeline_read_state(struct pipeline *pipeline, struct pipeline_state *ret);

/*
 * Closes everything, gives the sender until `deadline_ns` (CLOCK_MONOTONIC) and ends it. What is
 * in the spool by then waits for the next start. Returns 0, or -EIO with why when rows, ever, were
 * lost. pipeline_free() comes after.
 */
int pipeline_finish(struct pipeline *pipeline, uint64_t deadline_ns, struct why *why);
void pipeline_free(struct pipeline *pipeline);

#endif
