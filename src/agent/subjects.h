/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects of the agent's counters: trackers, tables of sums, discovery, the agent's own tables. */
#ifndef UNDERSPAN_AGENT_SUBJECTS_H
#define UNDERSPAN_AGENT_SUBJECTS_H

#include "agent/counts.h"
#include "agent/governor.h"
#include "agent/event_rows.h"
#include "pipeline/pipeline.h"
#include "trackers/trackers.h"

enum { MAX_SUBJECTS = 2 * MAX_TRACKERS + 2 };

struct subject {
	const char *name;
	const struct running_tracker *running; /* a tracker; NULL: another subject */
	bool discovery;
	size_t tables[2]; /* handles of the tables with the subject's rows */
	size_t n_tables;
};

struct subjects {
	struct tracker_set *set;
	const struct rows *rows;
	const struct governor *governor;
	struct pipeline *pipeline;
	struct subject items[MAX_SUBJECTS];
	size_t n;
};

/* To be called after rows_start(). */
void subjects_list(struct subjects *subjects, struct tracker_set *set, const struct rows *rows,
		   const struct governor *governor, struct pipeline *pipeline);

/*
 * Whether a count of a subject is measured: costs are by the governor only, of trackers and
 * discovery.
 */
bool subjects_measure(const struct subjects *subjects, size_t index, const char *count);

/* Reads the counters since the start. Collector thread only. */
void subjects_read(const struct subjects *subjects, size_t index, struct agent_counts *ret);

#endif
