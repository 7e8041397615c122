// SPDX-License-Identifier: Apache-2.0
/* The agent's rows about itself. See report.h. */
#include "agent/report.h"

#include <string.h>

#include "log.h"
#include "pipeline/enrich.h"
#include "probe/clock.h"
#include "version.h"

void report_start(struct report *report, struct tracker_set *set, struct pipeline *pipeline,
		  uint64_t interval_ns)
{
	*report = (struct report){ .set = set,
				   .pipeline = pipeline,
				   .interval_ns = interval_ns,
				   .since_ns = clock_monotonic_ns() };
}

static void complain_of_losses(const struct agent_row *row)
{
	uint64_t lost = row->lost_ring + row->lost_state + row->bad_event + row->dropped_memory +
			row->dropped_refused;

	if (lost)
		log_warn("%s: %llu events lost: %llu ring buffer full, %llu state map full, %llu "
			 "unreadable, %llu rows dropped for want of memory, %llu refused by the "
			 "database",
			 row->tracker, (unsigned long long)lost, (unsigned long long)row->lost_ring,
			 (unsigned long long)row->lost_state, (unsigned long long)row->bad_event,
			 (unsigned long long)row->dropped_memory,
			 (unsigned long long)row->dropped_refused);
}

/* Of both tables, where events become rows of either. */
static void read_counts(struct report *report, size_t index, struct pipeline_counts *ret)
{
	const struct running_tracker *running = &report->set->items[index];
	struct pipeline_counts second;

	pipeline_read_counts(report->pipeline, index, ret);
	if (!running->tracker->table_of)
		return;
	pipeline_read_counts(report->pipeline, running->second_table, &second);
	ret->rows += second.rows;
	ret->inserted += second.inserted;
	ret->dropped_memory += second.dropped_memory;
	ret->dropped_refused += second.dropped_refused;
	ret->retries += second.retries;
	ret->bytes += second.bytes;
	ret->queued += second.queued;
}

static void report_tracker(struct report *report, size_t index, uint64_t now_ns)
{
	const struct running_tracker *running = &report->set->items[index];
	struct report_last_counts *last = &report->last[index], now = { 0 };
	struct agent_row row;

	tracker_set_read_stats(report->set, index, now.stats);
	read_counts(report, index, &now.counts);
	now.bad_events = running->bad_events;
	now.own_rows = running->own_rows;
#define DELTA(member)	    (now.member - last->member)
#define DELTA_COUNT(member) DELTA(counts.member)
	row = (struct agent_row){
		.host = enrich_host(),
		.version = UNDERSPAN_VERSION,
		.tracker = running->tracker->name,
		.start_ns = report->since_ns,
		.end_ns = now_ns,
		.seen = DELTA(stats[STAT_SEEN]) + DELTA(own_rows),
		.filtered = DELTA(stats[STAT_FILTERED]),
		.lost_ring = DELTA(stats[STAT_LOST_RING]),
		.lost_state = DELTA(stats[STAT_LOST_STATE]),
		.bad_event = DELTA(bad_events),
		.read_fail = DELTA(stats[STAT_READ_FAIL]),
		.rows = DELTA_COUNT(rows),
		.inserted = DELTA_COUNT(inserted),
		.dropped_memory = DELTA_COUNT(dropped_memory),
		.dropped_refused = DELTA_COUNT(dropped_refused),
		.queued_rows = now.counts.queued,
		.retries = DELTA_COUNT(retries),
		.bytes_sent = DELTA_COUNT(bytes),
	};
#undef DELTA_COUNT
#undef DELTA
	*last = now;
	complain_of_losses(&row);
	pipeline_add(report->pipeline, report->set->n, &row);
}

void report_last(struct report *report, uint64_t now_ns)
{
	for (size_t i = 0; i < report->set->n; i++)
		report_tracker(report, i, now_ns);
	report->since_ns = now_ns;
}

void report_tick(struct report *report, uint64_t now_ns)
{
	if (now_ns - report->since_ns >= report->interval_ns)
		report_last(report, now_ns);
}

void report_health(struct report *report, const char *tracker, const struct tracker_health *health)
{
	const struct probe_health_row row = {
		.host = enrich_host(),
		.time_ns = clock_monotonic_ns(),
		.tracker = tracker,
		.live = health->live,
		.method = health->method,
		.binary = health->what,
		.reason = health->reason,
	};

	pipeline_add(report->pipeline, report->set->n + 1, &row);
}

static void report_tracker_state(struct report *report, const struct tracker *tracker,
				 const struct why *refused)
{
	const struct tracker_health health = { .live = !refused,
					       .reason = refused ? refused->text : "" };

	report_health(report, tracker->name, &health);
}

void report_trackers(struct report *report)
{
	struct tracker_set *set = report->set;

	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			report_tracker_state(report, set->items[i].tracker, NULL);
	}
	for (size_t i = 0; i < set->n_refused; i++)
		report_tracker_state(report, set->refused[i].tracker, &set->refused[i].why);
}

static void format_build_id(const struct python_image *image, char *buf, size_t size)
{
	buf[0] = 0;
	for (size_t i = 0; i < image->build_id_len && 2 * i + 3 <= size; i++)
		snprintf(buf + 2 * i, size - 2 * i, "%02x", image->build_id[i]);
}

void report_process(struct report *report, const struct process *process)
{
	const struct python_binary *binary = process->binary;
	char version[32] = "", build_id[2 * PYTHON_BUILD_ID_MAX + 1] = "";
	struct probe_health_row row = {
		.host = enrich_host(),
		.host_pid = process->host_pid,
		.time_ns = clock_monotonic_ns(),
		.python_version = version,
		.build_id = build_id,
		.binary = binary ? binary->path : "",
		.reason = process->refused.text,
	};

	enrich_identity(process->host_pid, 0, row.time_ns, &row.container_id, &row.pod_uid);
	if (binary) {
		snprintf(version, sizeof(version), "%u.%u.%u", binary->image.major,
			 binary->image.minor, binary->image.micro);
		format_build_id(&binary->image, build_id, sizeof(build_id));
	}
	for (size_t i = 0; i < report->set->n; i++) {
		const struct tracker *tracker = report->set->items[i].tracker;

		if (tracker->of_host)
			continue;
		row.tracker = tracker->name;
		row.live = binary && !report->set->items[i].dead &&
			   (!tracker->attach_binary || binary->live[i]);
		row.method = row.live && tracker->binary_method ? tracker->binary_method(binary)
								: "";
		if (binary)
			row.reason = row.live ? "" : binary->refused[i].text;
		pipeline_add(report->pipeline, report->set->n + 1, &row);
	}
}
