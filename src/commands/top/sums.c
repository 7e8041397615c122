// SPDX-License-Identifier: Apache-2.0
/* Time by process, thread and line. See sums.h. */
#include "commands/top/sums.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "trackers/request_metrics.h"

/* Sums flushed later than this are missing: nothing waited. */
static const uint64_t LATE_NS = 2 * NSEC_PER_SEC;

const struct top_tracker top_trackers[TOP_SOURCES] = {
	{ "off_cpu", TOP_OF_OFF_CPU },	     { "gil_wait", TOP_OF_GIL_WAIT },
	{ "gc_pause", TOP_OF_GC_PAUSE },     { "request", TOP_OF_REQUEST },
	{ "loop_stall", TOP_OF_LOOP_STALL }, { "on_cpu", TOP_OF_ON_CPU },
};

static enum top_source source_of(const struct top_sums *sums, enum top_level level,
				 enum top_part part)
{
	switch (part) {
	case TOP_CPU:
		return sums->cpu_by_samples || level == TOP_LINES ? TOP_OF_ON_CPU : TOP_OF_HOST;
	case TOP_GC:
		return TOP_OF_GC_PAUSE;
	case TOP_HELD:
		return TOP_OF_GIL_WAIT;
	default:
		return TOP_OF_OFF_CPU;
	}
}

bool top_part_is_known(const struct top_sums *sums, const struct top_entry *e,
		       const struct top_sum *sum, enum top_part part, unsigned int lacks,
		       unsigned int of_process)
{
	enum top_source source = source_of(sums, e->level, part);

	if ((part == TOP_GIL || part == TOP_HELD) && !(of_process & TOP_OF_GIL_WAIT))
		return false;
	if (source == TOP_OF_ON_CPU && !(of_process & TOP_OF_ON_CPU))
		return false;
	if (source == TOP_OF_HOST && !top_sum_knows_cpu(sum))
		return false;
	return !(lacks & source);
}

/* ---- rows ---- */

static uint64_t uint_of(const struct table *table, const void *row, const char *name)
{
	return column_uint(column_find(table, name), row);
}

static const char *text_of(const struct table *table, const void *row, const char *name, char *buf,
			   size_t size)
{
	return column_text(column_find(table, name), row, buf, size);
}

static double weight_of(const struct table *table, const void *row)
{
	const struct column *c = column_find(table, "weight");

	return c ? (double)*(const float *)((const char *)row + c->offset) : 1;
}

/* The entries to which a row of a thread counts; NULL: no place. */
struct places {
	struct top_entry *of[TOP_LEVELS];
};

static void add(const struct places *p, enum top_part part, double ns)
{
	for (int level = 0; level < TOP_LEVELS; level++) {
		if (p->of[level])
			p->of[level]->now.ns[part] += (uint64_t)ns;
	}
}

static bool is_library(const char *frame)
{
	return strstr(frame, "/lib/python") || strstr(frame, "/lib64/python") ||
	       strstr(frame, "site-packages") || strstr(frame, "dist-packages") ||
	       strstr(frame, "(<frozen");
}

/* The innermost line of the application. */
static const char *line_of(struct column_strings stack)
{
	for (size_t i = 0; i < stack.n; i++) {
		if (strchr(stack.items[i], '(') && !is_library(stack.items[i]))
			return stack.items[i];
	}
	return stack.n ? stack.items[0] : "(no Python stack)";
}

static struct places places_of(struct top_sums *sums, const struct table *table, const void *row)
{
	uint32_t host_pid = (uint32_t)uint_of(table, row, "host_pid");
	uint32_t host_tid = (uint32_t)uint_of(table, row, "host_tid");
	struct column_strings stack = column_strings(column_find(table, "py_stack"), row);
	struct places p = { { top_entry_of_process(sums, host_pid) } };
	char name[256], comm[32];
	bool nameless;

	text_of(table, row, "thread_name", name, sizeof(name));
	nameless = !*name;
	if (nameless) {
		text_of(table, row, "comm", comm, sizeof(comm));
		snprintf(name, sizeof(name), "%s (%u)", comm, host_tid);
	}
	p.of[TOP_THREADS] = top_entry_of_thread(sums, host_pid, host_tid, name, nameless);
	if (p.of[TOP_THREADS])
		top_entry_note_thread(sums, host_pid, host_tid, p.of[TOP_THREADS]);
	p.of[TOP_LINES] = top_sums_entry(sums, TOP_LINES, host_pid, line_of(stack));
	if (p.of[TOP_PROCESSES])
		text_printable(p.of[TOP_PROCESSES]->service, sizeof(p.of[0]->service),
			       text_of(table, row, "service", name, 64));
	return p;
}

enum top_part top_part_of(const char *cause)
{
	static const struct {
		const char *cause;
		enum top_part part;
	} parts[] = { { "gil", TOP_GIL },   { "lock", TOP_LOCK },   { "net", TOP_NET },
		      { "disk", TOP_DISK }, { "sleep", TOP_SLEEP }, { "preempt", TOP_RUNQ } };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!strcmp(cause, parts[i].cause))
			return parts[i].part;
	}
	return TOP_OTHER;
}

static void add_waits(struct top_sums *sums, const struct table *table, const void *row)
{
	uint64_t off_ns = uint_of(table, row, "off_ns"), runq_ns = uint_of(table, row, "runq_ns");
	uint64_t end_ns = uint_of(table, row, "end_time");
	double weight = weight_of(table, row);
	struct places p;
	char cause[32];

	if (end_ns > sums->profile_end_ns)
		sums->profile_end_ns = end_ns;
	if (!uint_of(table, row, "host_pid"))
		return;
	p = places_of(sums, table, row);
	text_of(table, row, "cause", cause, sizeof(cause));
	runq_ns = runq_ns < off_ns ? runq_ns : off_ns;
	add(&p, TOP_RUNQ, (double)runq_ns * weight);
	add(&p, uint_of(table, row, "idle") ? TOP_IDLE : top_part_of(cause),
	    (double)(off_ns - runq_ns) * weight);
}

/* Processes and threads have the kernel's CPU times, which are exact until they end. */
static void add_sample(struct top_sums *sums, const struct table *table, const void *row)
{
	struct places p = places_of(sums, table, row);
	uint64_t ns = (uint64_t)((double)uint_of(table, row, "duration_ns") *
				 weight_of(table, row));

	if (p.of[TOP_PROCESSES])
		p.of[TOP_PROCESSES]->has_samples = true;
	if (p.of[TOP_LINES])
		p.of[TOP_LINES]->now.ns[TOP_CPU] += ns;
	for (int level = TOP_PROCESSES; level <= TOP_THREADS; level++) {
		if (p.of[level])
			p.of[level]->now.sampled_ns += ns;
	}
}

static void add_held(struct top_sums *sums, const struct table *table, const void *row)
{
	struct top_entry *e = top_sums_of_tid(sums,
					      (uint32_t)uint_of(table, row, "holder_host_tid"));

	if (e)
		e->now.ns[TOP_HELD] += uint_of(table, row, "wait_ns");
}

static void add_request(struct top_sums *sums, const struct table *table, const void *row)
{
	struct top_entry *e = top_entry_of_process(sums, (uint32_t)uint_of(table, row, "host_pid"));
	double weight = weight_of(table, row);
	char column[48];

	if (!e)
		return;
	e->has_requests = true;
	e->now.requests += weight;
	for (int i = 0; i < REQUEST_PARTS; i++) {
		const struct column *c;
		bool known;

		snprintf(column, sizeof(column), "%s_ns", request_parts[i].name);
		c = column_find(table, column);
		known = column_is_known(c, row);
		top_sum_add_part(&e->now, i, known, (double)column_uint(c, row) * weight, !known);
	}
}

void top_sums_row(struct top_sums *sums, const struct table *table, const void *row)
{
	uint64_t ns = uint_of(table, row, "duration_ns");
	struct places p;

	if (!strcmp(table->name, "ebpf_off_cpu_profile")) {
		add_waits(sums, table, row);
	} else if (!strcmp(table->name, "ebpf_gil_wait_profile")) {
		add_held(sums, table, row);
	} else if (!strcmp(table->name, "ebpf_on_cpu")) {
		add_sample(sums, table, row);
	} else if (!strcmp(table->name, "ebpf_gc_pause")) {
		p = places_of(sums, table, row);
		add(&p, TOP_GC, (double)ns * weight_of(table, row));
	} else if (!strcmp(table->name, "ebpf_loop_stall")) {
		p = places_of(sums, table, row);
		for (int level = 0; level < TOP_LEVELS; level++) {
			if (p.of[level] && ns > p.of[level]->now.lag_ns)
				p.of[level]->now.lag_ns = ns;
		}
	} else if (!strcmp(table->name, "ebpf_request")) {
		add_request(sums, table, row);
	}
}

/* ---- times ---- */

static void read_servers(struct top_sums *sums)
{
	AUTO_FREE struct request_live *live = NULL;
	int n = request_live_read(&live);

	for (struct top_entry *e = sums->entries; e && n >= 0; e = e->hh.next) {
		if (e->level == TOP_PROCESSES && e->has_requests)
			e->busy = e->waiting = 0;
	}
	for (int i = 0; i < n; i++) {
		struct top_entry *e = live[i].host_pid
					      ? top_entry_of_process(sums, live[i].host_pid)
					      : NULL;

		if (!e)
			continue;
		e->has_requests = true;
		e->busy = (e->busy > 0 ? e->busy : 0) + (int64_t)live[i].busy;
		e->waiting = (e->waiting > 0 ? e->waiting : 0) + (int64_t)live[i].waiting;
		e->busy_max = e->busy > e->busy_max ? e->busy : e->busy_max;
		e->waiting_max = e->waiting > e->waiting_max ? e->waiting : e->waiting_max;
	}
}

static void publish(struct top_sums *sums, uint64_t length_ns)
{
	for (struct top_entry *e = sums->entries; e; e = e->hh.next) {
		e->shown = e->now;
		top_sum_add(&e->all, &e->now);
		e->now = (struct top_sum){ 0 };
	}
	sums->shown_lacks = sums->lacking;
	sums->all_lacks |= sums->lacking;
	sums->lacking = 0;
	sums->shown_ns = length_ns;
	sums->all_ns += length_ns;
}

void top_sums_publish(struct top_sums *sums, unsigned int lacking, uint64_t now_ns)
{
	sums->lacking |= lacking;
	read_servers(sums);
	if (!sums->published_ns) {
		sums->published_ns = now_ns;
		sums->published_profile_ns = sums->profile_end_ns;
		return;
	}
	/* an interval of the sums ends at any time of the second */
	if (sums->profile_end_ns == sums->published_profile_ns &&
	    now_ns - sums->published_ns < LATE_NS)
		return;
	top_entries_read_cpu(sums);
	publish(sums, now_ns - sums->published_ns);
	sums->published_ns = now_ns;
	sums->published_profile_ns = sums->profile_end_ns;
}

void top_sums_finish(struct top_sums *sums, uint64_t measured_ns)
{
	top_entries_read_cpu(sums);
	publish(sums, 0);
	sums->all_ns = measured_ns;
}
