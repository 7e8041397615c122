// SPDX-License-Identifier: Apache-2.0
/* Subjects of the agent's counters. See subjects.h. */
#include "agent/subjects.h"

#include <string.h>

#include "agent/agent_tables.h"
#include "agent/event_rows.h"

static struct subject *add(struct subjects *subjects, const char *name)
{
	struct subject *subject = &subjects->items[subjects->n++];

	*subject = (struct subject){ .name = name };
	return subject;
}

static void add_table(struct subject *subject, size_t table)
{
	subject->tables[subject->n_tables++] = table;
}

void subjects_list(struct subjects *subjects, struct tracker_set *set, const struct rows *rows,
		   const struct governor *governor, struct pipeline *pipeline)
{
	struct subject *subject;

	*subjects = (struct subjects){
		.set = set, .rows = rows, .governor = governor, .pipeline = pipeline
	};
	for (size_t i = 0; i < set->n; i++) {
		const struct running_tracker *running = &set->items[i];

		subject = add(subjects, running->tracker->name);
		subject->running = running;
		add_table(subject, running->tables[0]);
		/* events become rows of both tables; otherwise the second table has sums made by
		 * the tracker
		 */
		if (running->tracker->table_of)
			add_table(subject, running->tables[1]);
	}
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;

		if (!tracker->second_table || tracker->table_of)
			continue;
		subject = add(subjects, tracker->second_table->name + strlen("ebpf_"));
		add_table(subject, set->items[i].tables[1]);
	}
	add(subjects, "processes")->discovery = true;
	subject = add(subjects, "agent");
	add_table(subject, pipeline_table(pipeline, &agent_table));
	add_table(subject, pipeline_table(pipeline, &probe_health_table));
}

static void add_rows(const struct subjects *subjects, size_t table, struct agent_counts *to)
{
	const struct rows_lacking *lacking = &subjects->rows->lacking[table];
	struct pipeline_counts counts;

	pipeline_read_counts(subjects->pipeline, table, &counts);
	to->rows += counts.rows;
	to->recovered += counts.recovered;
	to->inserted += counts.inserted;
	to->dropped_memory += counts.dropped_memory;
	to->dropped_spool += counts.dropped_spool;
	to->dropped_corrupt += counts.dropped_corrupt;
	to->dropped_refused += counts.dropped_refused;
	to->lost_crash += counts.lost_crash;
	to->queued_rows += counts.queued;
	to->spooled_rows += counts.spooled;
	to->retries += counts.retries;
	to->columns_left_out += counts.columns_left_out;
	to->bytes_sent += counts.bytes;
	to->rows_gone += lacking->gone;
	to->rows_unread += lacking->unread;
	to->rows_unnamed += lacking->unnamed;
}

static void add_stats(const uint64_t stats[STAT_MAX], struct agent_counts *to)
{
	to->seen += stats[STAT_SEEN];
	to->filtered += stats[STAT_FILTERED];
	to->sampled += stats[STAT_SAMPLED];
	to->lost_ring += stats[STAT_LOST_RING];
	to->lost_state += stats[STAT_LOST_STATE];
	to->stack_late += stats[STAT_STACK_LATE];
	to->stack_state += stats[STAT_STACK_STATE];
	to->stack_moved += stats[STAT_STACK_MOVED];
	to->stack_room += stats[STAT_STACK_ROOM];
	to->stack_share += stats[STAT_STACK_SHARE];
	to->read_fail += stats[STAT_READ_FAIL] + stats[STAT_STACK_LATE] + stats[STAT_STACK_STATE] +
			 stats[STAT_STACK_MOVED] + stats[STAT_STACK_ROOM] + stats[STAT_STACK_SHARE];
}

/* The governor's items: trackers in order, then discovery. */
static void add_cost(const struct governor *governor, size_t i, struct agent_counts *to)
{
	const struct governor_tracker *tracker = &governor->items[i];

	to->bpf_ns = tracker->cost.bpf_ns;
	to->bpf_hits = tracker->cost.bpf_hits;
	to->agent_ns = tracker->cost.agent_ns;
	to->sampling_level = tracker->sampling.level;
	to->skip_shift = tracker->sampling.skip_shift;
}

bool subjects_measure(const struct subjects *subjects, size_t index, const char *count)
{
	const struct subject *subject = &subjects->items[index];
	bool has_cost = subject->running || subject->discovery;

	if (!strncmp(count, "bpf_", 4))
		return has_cost && subjects->governor->has_bpf;
	return strcmp(count, "agent_ns") != 0 || (has_cost && subjects->governor->has_agent);
}

void subjects_read(const struct subjects *subjects, size_t index, struct agent_counts *ret)
{
	const struct subject *subject = &subjects->items[index];
	struct agent_counts counts = { 0 };
	uint64_t stats[STAT_MAX];

	/* rows first: events counted after this read are pending */
	for (size_t i = 0; i < subject->n_tables; i++)
		add_rows(subjects, subject->tables[i], &counts);
	if (subject->running) {
		counts.bad_event = subject->running->bad_events;
		counts.filtered += subject->running->of_refused;
		counts.seen = subject->running->own_rows + subject->running->dropped_open;
		counts.lost_state = subject->running->dropped_open;
		tracker_set_read_stats(subject->running->stats_fd, stats);
		add_stats(stats, &counts);
		add_cost(subjects->governor, index, &counts);
	} else if (subject->discovery) {
		/* process events produce no rows: consumed when read */
		counts.filtered = subjects->set->process_events;
		tracker_set_read_stats(subjects->set->process_stats_fd, stats);
		add_stats(stats, &counts);
		add_cost(subjects->governor, subjects->set->n, &counts);
	} else {
		counts.seen = counts.rows;
	}
	counts.pending = counts.seen - counts.filtered - counts.sampled - counts.lost_ring -
			 counts.lost_state - counts.bad_event - counts.rows;
	*ret = counts;
}
