// SPDX-License-Identifier: Apache-2.0
/* Rows about the agent. See report.h. */
#include "agent/report.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "rows/enrich.h"
#include "rows/identities.h"
#include "base/clock.h"
#include "host/every_call.h"
#include "base/version.h"
#include "cpython/offsets.h"

static const uint64_t LOG_EVERY_NS = 60 * NSEC_PER_SEC;

void report_start(struct report *report, struct tracker_set *set, const struct rows *rows,
		  const struct governor *governor, struct pipeline *pipeline, uint64_t interval_ns)
{
	uint64_t now = clock_monotonic_ns();

	*report = (struct report){ .set = set,
				   .pipeline = pipeline,
				   .agent_table = pipeline_table(pipeline, &agent_table),
				   .health_table = pipeline_table(pipeline, &probe_health_table),
				   .interval_ns = interval_ns,
				   .since_ns = now,
				   .logged_ns = now };
	subjects_list(&report->subjects, set, rows, governor, pipeline);
}

/* ---- counts ---- */

static struct column_maybe_u64 cost_of(const struct report *report, size_t index, const char *count,
				       uint64_t value)
{
	return (struct column_maybe_u64){
		.known = subjects_measure(&report->subjects, index, count), .value = value
	};
}

static void report_subject(struct report *report, size_t index, uint64_t now_ns)
{
	struct agent_counts now;
	struct agent_row row = { .host = enrich_host(),
				 .version = UNDERSPAN_VERSION,
				 .tracker = report->subjects.items[index].name,
				 .start_ns = report->since_ns,
				 .end_ns = now_ns };

	subjects_read(&report->subjects, index, &now);
	agent_counts_since(&now, &report->last[index], &row.counts);
	report->last[index] = now;
	row.bpf_ns = cost_of(report, index, "bpf_ns", row.counts.bpf_ns);
	row.bpf_hits = cost_of(report, index, "bpf_hits", row.counts.bpf_hits);
	row.agent_ns = cost_of(report, index, "agent_ns", row.counts.agent_ns);
	pipeline_add(report->pipeline, report->agent_table, &row);
}

/* Is the subject a tracker that is out, or such a tracker's table of sums ("off_cpu_profile")? */
static bool is_out(const struct report *report, size_t index)
{
	const char *name = report->subjects.items[index].name;

	for (size_t i = 0; i < report->set->n; i++) {
		const char *tracker = report->subjects.items[i].name;
		size_t n = strlen(tracker);

		if (report->out_since_ns[i] && !strncmp(name, tracker, n) &&
		    (!name[n] || !strcmp(name + n, "_profile")))
			return true;
	}
	return false;
}

static void report_all(struct report *report, uint64_t now_ns)
{
	for (size_t i = 0; i < report->subjects.n; i++) {
		if (!is_out(report, i))
			report_subject(report, i, now_ns);
	}
	report->since_ns = now_ns;
}

static void format_time(uint64_t monotonic_ns, char *buf, size_t size)
{
	time_t seconds = (time_t)(clock_wall_us(monotonic_ns) / 1000000);
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(buf, size, "%Y-%m-%d %H:%M:%S UTC", &tm);
}

static void report_out(struct report *report, const struct running_tracker *running)
{
	char since[40];
	struct why why;

	format_time(running->out_since_ns, since, sizeof(since));
	why_fail(&why, 0, "taken out by the governor: not measured since %s", since);
	report_health(report, running->tracker->name,
		      &(struct tracker_health){ .reason = why.text });
}

static void report_back(struct report *report, const struct running_tracker *running,
			uint64_t since_ns, uint64_t now_ns)
{
	char since[40], until[40];
	struct why why;

	format_time(since_ns, since, sizeof(since));
	format_time(now_ns, until, sizeof(until));
	why_fail(&why, 0, "not measured from %s to %s: taken out by the governor", since, until);
	report_health(report, running->tracker->name,
		      &(struct tracker_health){ .live = true, .reason = why.text });
}

void report_outages(struct report *report, uint64_t now_ns)
{
	report_all(report, now_ns);
	for (size_t i = 0; i < report->set->n; i++) {
		const struct running_tracker *running = &report->set->items[i];
		uint64_t before = report->out_since_ns[i];

		report->out_since_ns[i] = running->out_since_ns;
		if (!before && running->out_since_ns)
			report_out(report, running);
		else if (before && !running->out_since_ns)
			report_back(report, running, before, now_ns);
	}
}

static void log_losses(struct report *report, uint64_t now_ns)
{
	unsigned long long seconds = (now_ns - report->logged_ns + NSEC_PER_SEC / 2) / NSEC_PER_SEC;

	for (size_t i = 0; i < report->subjects.n; i++) {
		struct agent_counts lost;
		char text[400];

		agent_counts_since(&report->last[i], &report->logged[i], &lost);
		report->logged[i] = report->last[i];
		if (*agent_counts_list(&lost, COUNT_LOSS, text, sizeof(text)))
			log_warn("%s: in the last %llu s: %s", report->subjects.items[i].name,
				 seconds, text);
		if (*agent_counts_list(&lost, COUNT_LACK, text, sizeof(text)))
			log_info("%s: in the last %llu s: %s", report->subjects.items[i].name,
				 seconds, text);
	}
	report->logged_ns = now_ns;
}

static void check_sums(const struct report *report)
{
	for (size_t i = 0; i < report->subjects.n; i++) {
		long long rest = (long long)report->last[i].pending;

		if (rest)
			log_error("%s: counts do not add up: %lld of %llu events are neither rows "
				  "nor filtered nor lost",
				  report->subjects.items[i].name, rest,
				  (unsigned long long)report->last[i].seen);
	}
}

void report_last(struct report *report, uint64_t now_ns)
{
	report_all(report, now_ns);
	/* no time, but the counts since the tracker was taken out */
	for (size_t i = 0; i < report->subjects.n; i++) {
		if (is_out(report, i))
			report_subject(report, i, now_ns);
	}
	log_losses(report, now_ns);
	check_sums(report);
}

void report_tick(struct report *report, uint64_t now_ns)
{
	if (now_ns - report->since_ns >= report->interval_ns)
		report_all(report, now_ns);
	if (now_ns - report->logged_ns >= LOG_EVERY_NS)
		log_losses(report, now_ns);
}

/* ---- probes ---- */

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

	pipeline_add(report->pipeline, report->health_table, &row);
}

void report_clock(struct report *report)
{
	struct tracker_health health = { .live = true };
	struct clock_step step;
	struct why why;

	if (!clock_take_step(&step))
		return;
	/* small steps of chronyd are normal */
	if (llabs(step.ns) < (int64_t)NSEC_PER_MSEC) {
		log_debug("clock: stepped by %.6f s", (double)step.ns / 1e9);
		return;
	}
	if (step.slept_ns)
		why_fail(&why, 0, "the host was suspended for %.3f s", (double)step.slept_ns / 1e9);
	else
		why_fail(&why, 0,
			 "the wall clock was stepped by %.6f s; rows carry the clock time of "
			 "the event, uncertain for %.3f s before this step",
			 (double)step.ns / 1e9, (double)(step.before_ns - step.after_ns) / 1e9);
	log_warn("clock: %s", why.text);
	health.reason = why.text;
	report_health(report, "clock", &health);
}

static void report_running(struct report *report, const struct running_tracker *running)
{
	struct tracker_health health = { .live = true };
	struct why why;

	if (running->out_since_ns) {
		report_out(report, running);
		return;
	}
	if (tracker_runs_on_every_call(running)) {
		every_call_why(&why);
		log_warn("%s: %s", running->tracker->name, why.text);
		health.method = every_call_method;
		health.reason = why.text;
	}
	report_health(report, running->tracker->name, &health);
}

void report_trackers(struct report *report)
{
	struct tracker_set *set = report->set;

	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			report_running(report, &set->items[i]);
	}
	for (size_t i = 0; i < set->n_refused; i++)
		report_health(report, set->refused[i].tracker->name,
			      &(struct tracker_health){ .reason = set->refused[i].why.text });
}

static void format_build_id(const struct python_image *image, char *buf, size_t size)
{
	buf[0] = 0;
	for (size_t i = 0; i < image->build_id_len && 2 * i + 3 <= size; i++)
		snprintf(buf + 2 * i, size - 2 * i, "%02x", image->build_id[i]);
}

/* Common part of a process's rows; `version` and `build_id` hold its strings. */
static struct probe_health_row row_of_process(const struct process *process, char version[32],
					      char build_id[2 * PYTHON_BUILD_ID_MAX + 1])
{
	const struct python_binary *binary = process->file.binary;
	const struct cgroup_identity *identity;
	struct probe_health_row row = {
		.host = enrich_host(),
		.host_pid = process->host_pid,
		.time_ns = clock_monotonic_ns(),
		.python_version = version,
		.build_id = build_id,
		.binary = binary ? binary->path : "",
		.reason = process->refused.text,
	};

	identity = identities_find(process->host_pid, 0, row.time_ns);
	row.container_id = identity->container_id;
	row.pod_uid = identity->pod_uid;
	version[0] = build_id[0] = '\0';
	if (binary) {
		snprintf(version, 32, "%u.%u.%u", binary->image.major, binary->image.minor,
			 binary->image.micro);
		format_build_id(&binary->image, build_id, 2 * PYTHON_BUILD_ID_MAX + 1);
	}
	return row;
}

void report_python(struct report *report, const struct process *process)
{
	char version[32], build_id[2 * PYTHON_BUILD_ID_MAX + 1];
	struct probe_health_row row = row_of_process(process, version, build_id);

	row.tracker = "python";
	row.live = process->live.threads > 0;
	if (process->file.binary) /* not refused in the meantime of the job */
		row.method = python_offsets_method(&process->file.binary->image);
	row.reason = row.live ? "" : process->unread.text;
	pipeline_add(report->pipeline, report->health_table, &row);
}

/* Row of a process with a probed interpreter. */
static void describe_probed(struct probe_health_row *row, const struct running_tracker *running,
			    size_t i, const struct python_binary *binary)
{
	const struct tracker *tracker = running->tracker;

	row->live = !running->dead && (!tracker_attaches(tracker) || binary->probes[i].live);
	row->method = row->live && tracker_attaches(tracker) ? tracker->python->method(binary) : "";
	row->reason = row->live ? "" : binary->probes[i].refused.text;
}

/* Row of a refused process: trackers independent of the interpreter still produce rows, without
 * Python data. */
static void describe_refused(struct probe_health_row *row, const struct running_tracker *running,
			     const struct process *process, struct why *why)
{
	const char *refused = process->refused.text;

	row->live = !running->dead && !tracker_needs_interpreter(running->tracker) &&
		    !process->file.unanswered;
	row->reason = refused;
	if (!row->live)
		return;
	why_fail(why, 0, "rows have no Python stacks and no names of threads: %.400s", refused);
	row->reason = why->text;
}

void report_process(struct report *report, const struct process *process)
{
	char version[32], build_id[2 * PYTHON_BUILD_ID_MAX + 1];
	struct probe_health_row row = row_of_process(process, version, build_id);
	struct why why;

	for (size_t i = 0; i < report->set->n; i++) {
		const struct running_tracker *running = &report->set->items[i];

		if (running->tracker->of_host)
			continue;
		row.tracker = running->tracker->name;
		row.method = "";
		if (process->file.binary)
			describe_probed(&row, running, i, process->file.binary);
		else
			describe_refused(&row, running, process, &why);
		pipeline_add(report->pipeline, report->health_table, &row);
	}
}
