// SPDX-License-Identifier: Apache-2.0
/* What the agent counts. See counts.h. */
#include "agent/counts.h"

#include <string.h>

#include "agent/rows.h"

const struct agent_count agent_count_list[N_AGENT_COUNTS] = {
#define X(name_, kind_, what_) { #name_, offsetof(struct agent_counts, name_), kind_, what_ },
	AGENT_COUNTS(X)
#undef X
};

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

void subjects_list(struct subjects *subjects, struct tracker_set *set,
		   const struct governor *governor, struct pipeline *pipeline, size_t own_tables)
{
	struct subject *subject;

	*subjects = (struct subjects){ .set = set, .governor = governor, .pipeline = pipeline };
	for (size_t i = 0; i < set->n; i++) {
		const struct running_tracker *running = &set->items[i];

		subject = add(subjects, running->tracker->name);
		subject->running = running;
		add_table(subject, i);
		/* events become rows of either: else the second one's are sums, of its own making
		 */
		if (running->tracker->table_of)
			add_table(subject, running->second_table);
	}
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;

		if (!tracker->second_table || tracker->table_of)
			continue;
		subject = add(subjects, tracker->second_table->name + strlen("ebpf_"));
		add_table(subject, set->items[i].second_table);
	}
	add(subjects, "processes")->discovery = true;
	subject = add(subjects, "agent");
	add_table(subject, own_tables);
	add_table(subject, own_tables + 1);
}

static void add_rows(const struct subjects *subjects, size_t table, struct agent_counts *to)
{
	const struct rows_lacking *lacking = rows_lacking(table);
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

/* The governor has the trackers in their order, and finding processes after them. */
static void add_cost(const struct governor *governor, size_t i, struct agent_counts *to)
{
	const struct governor_tracker *tracker = &governor->items[i];

	to->bpf_ns = tracker->cost.bpf_ns;
	to->bpf_hits = tracker->cost.bpf_hits;
	to->agent_ns = tracker->cost.agent_ns;
	to->sampling_level = tracker->sampling.level;
	to->skip_shift = tracker->sampling.skip_shift;
}

void subjects_read(const struct subjects *subjects, size_t index, struct agent_counts *ret)
{
	const struct subject *subject = &subjects->items[index];
	struct agent_counts counts = { 0 };
	uint64_t stats[STAT_MAX];

	/* the rows first: what the kernel counts meanwhile is pending */
	for (size_t i = 0; i < subject->n_tables; i++)
		add_rows(subjects, subject->tables[i], &counts);
	if (subject->running) {
		counts.bad_event = subject->running->bad_events;
		counts.filtered += subject->running->of_refused;
		counts.seen = subject->running->own_rows;
		tracker_set_read_stats(subject->running->stats_fd, stats);
		add_stats(stats, &counts);
		add_cost(subjects->governor, index, &counts);
	} else if (subject->discovery) {
		/* no rows come of them: they have done their work when they were read */
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

void agent_counts_since(const struct agent_counts *now, const struct agent_counts *before,
			struct agent_counts *ret)
{
	for (size_t i = 0; i < N_AGENT_COUNTS; i++) {
		uint64_t value = agent_count_of(now, i);

		if (agent_count_list[i].kind != COUNT_GAUGE)
			value -= agent_count_of(before, i);
		*(uint64_t *)((char *)ret + agent_count_list[i].offset) = value;
	}
}

const char *agent_counts_list(const struct agent_counts *counts, enum agent_count_kind kind,
			      char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < N_AGENT_COUNTS && len < size; i++) {
		uint64_t n = agent_count_of(counts, i);

		if (agent_count_list[i].kind == kind && n)
			len += (size_t)snprintf(buf + len, size - len, "%s%llu %s", len ? ", " : "",
						(unsigned long long)n, agent_count_list[i].what);
	}
	return buf;
}
