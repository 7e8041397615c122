// SPDX-License-Identifier: Apache-2.0
/* The agent for selected processes, for a command. See measure.h. */
#include "commands/measure.h"

#include <bpf/libbpf.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "commands/pids.h"
#include "commands/watched.h"
#include "base/log.h"
#include "pipeline/options.h"
#include "base/clock.h"
#include "base/stop.h"
#include "base/terminal.h"
#include "trackers/trackers.h"

static struct pid_list pids;
static uint64_t duration_ns = UINT64_MAX; /* not given */

static const struct option options[] = {
	{ .key = "pid",
	  .type = OPTION_PIDS,
	  .target = &pids,
	  .arg = "PID",
	  .help = "the process (host pid) and all descendants, future ones included (of a "
		  "database: that process alone); "
		  "repeatable; the -p may be omitted, and then a program's name, a systemd unit or a "
		  "cgroup's path stands for all of its processes",
	  .letter = 'p' },
	{ .key = "duration",
	  .type = OPTION_SECONDS,
	  .target = &duration_ns,
	  .arg = "S",
	  .help = "duration of the measurement; 0: until Ctrl-C (Ctrl-C always ends the "
		  "measurement)",
	  .otherwise = "5s; offcpu --top: until Ctrl-C",
	  .letter = 'd' },
};
const struct option_table measure_options = { options, ARRAY_SIZE(options) };

struct option_table measure_tracker_options(const char *name)
{
	size_t i = 0;

	while (strcmp(all_trackers[i]->name, name) != 0)
		i++;
	return tracker_options(all_trackers[i]);
}

/* Time to find interpreters; a new interpreter is found within milliseconds. */
static const uint64_t FIND_NS = 1200 * NSEC_PER_MSEC;

static const struct measure *current_measure;
static struct measured *current_result;
static struct agent *agent;
static uint64_t first_tick_ns, next_second_ns;
static struct pid_list watched_pids; /* existing processes of `pids` */

/* ---- the processes ---- */

int measure_parse(const struct option_table *tables, int argc, char **argv, struct why *why)
{
	return pids_parse(tables, argc, argv, &pids, why);
}

const struct pid_list *measure_pids(void)
{
	return &pids;
}

bool measure_is_timed(void)
{
	return duration_ns != UINT64_MAX;
}

int measure_check(struct measured *ret, struct why *why)
{
	int err = watched_choose(&pids, &watched_pids, why);

	*ret = (struct measured){ 0 };
	if (err == -EINVAL || !watched_first())
		return err;
	ret->host_pid = watched_first()->host_pid;
	snprintf(ret->comm, sizeof(ret->comm), "%s", watched_first()->comm);
	return err;
}

int measure_check_any(struct measured *ret, struct why *why)
{
	*ret = (struct measured){ 0 };
	return pids.n ? measure_check(ret, why) : 0;
}

/* ---- rows ---- */

static bool text_is(const struct table *table, const void *row, const char *name, const char *text)
{
	char buf[64];

	return !strcmp(column_text(column_find(table, name), row, buf, sizeof(buf)), text);
}

/* The tracker does not run on this host. */
static void on_refusal(const struct table *table, const void *row)
{
	char reason[448];

	column_text(column_find(table, "reason"), row, reason, sizeof(reason));
	why_fail(&current_result->refused, 0, "%s: %s", current_measure->needs, reason);
}

/* Of what the tracker has seen it makes no rows, or not whole ones: counts since the start. */
static void on_word(const struct table *table, const void *row)
{
	struct measured_word word, *known = current_result->words;
	size_t i = 0;

	column_text(column_find(table, "binary"), row, word.what, sizeof(word.what));
	column_text(column_find(table, "reason"), row, word.text, sizeof(word.text));
	if (!*word.text)
		return;
	while (i < current_result->n_words && strcmp(known[i].what, word.what) != 0)
		i++;
	if (i == MEASURED_WORDS)
		return;
	known[i] = word;
	if (i == current_result->n_words)
		current_result->n_words++;
}

static void on_health(const struct table *table, const void *row)
{
	uint32_t host_pid = (uint32_t)column_uint(column_find(table, "host_pid"), row);
	bool live = column_uint(column_find(table, "live"), row);
	char method[32], reason[512];

	if (!host_pid && current_measure->needs &&
	    text_is(table, row, "tracker", current_measure->needs)) {
		if (live)
			on_word(table, row);
		else if (!agent_has_out(agent, current_measure->needs))
			on_refusal(table, row);
	}
	if (!host_pid || !text_is(table, row, "tracker", current_measure->probes))
		return;
	column_text(column_find(table, "method"), row, method, sizeof(method));
	column_text(column_find(table, "reason"), row, reason, sizeof(reason));
	watched_health(host_pid, live, method, *reason ? reason : "reason not known");
	if (live)
		snprintf(current_result->method, sizeof(current_result->method), "%s", method);
}

static void on_counts(const struct table *table, const void *row)
{
	static const char *const losses[] = { "lost_ring", "lost_state", "bad_event" };

	if (!text_is(table, row, "tracker", current_measure->trackers.items[0]))
		return;
	for (size_t k = 0; k < ARRAY_SIZE(losses); k++)
		current_result->lost += column_uint(column_find(table, losses[k]), row);
}

/* Extends the measured time to the first and last row: probes exist before the first tick and after
 * the last. */
static void widen(const struct table *table, const void *row)
{
	uint64_t start = column_uint(column_find(table, "start_time"), row);
	uint64_t end = column_uint(column_find(table, "end_time"), row);

	if (start && (!current_result->begin_ns || start < current_result->begin_ns))
		current_result->begin_ns = start;
	if (end > current_result->end_ns)
		current_result->end_ns = end;
}

static void add_row(struct sink *sink, const struct table *table, const void *row)
{
	(void)sink;
	if (!strcmp(table->name, "ebpf_probe_health")) {
		on_health(table, row);
	} else if (!strcmp(table->name, "ebpf_agent")) {
		on_counts(table, row);
	} else {
		widen(table, row);
		current_measure->row(table, row);
	}
}

/* ---- time ---- */

static void say_progress(uint64_t now)
{
	unsigned int seconds = (unsigned int)((now - first_tick_ns) / NSEC_PER_SEC);

	if (!current_measure->progress || !terminal_obeys(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K%s: %u s", pids.n ? watched_text() : "all Pythons of this host",
		seconds);
	if (duration_ns)
		fprintf(stderr, " of %.0f", (double)duration_ns / 1e9);
	fprintf(stderr, ", stop with Ctrl-C");
	fflush(stderr);
}

static void end_progress(void)
{
	if (current_measure->progress && terminal_obeys(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}

bool measure_runs(const char *tracker)
{
	return agent_measures(agent, tracker);
}

void measure_end_early(void)
{
	kill(getpid(), SIGTERM);
}

static void tick(struct sink *sink, uint64_t now)
{
	(void)sink;
	if (!first_tick_ns)
		first_tick_ns = next_second_ns = now;
	if (!current_result->begin_ns)
		current_result->begin_ns = now;
	current_result->end_ns = now;
	if (current_result->refused.text[0])
		measure_end_early();
	if (current_measure->needs_probes && !watched_any_live() &&
	    (watched_none_can_be() || now - first_tick_ns > FIND_NS))
		measure_end_early();
	if (now < next_second_ns)
		return;
	next_second_ns += NSEC_PER_SEC;
	if (pids.n && !current_result->gone && watched_all_gone()) {
		current_result->gone = true;
		measure_end_early();
	}
	say_progress(now);
	if (current_measure->each_second)
		current_measure->each_second();
}

static void free_sink(struct sink *sink)
{
	(void)sink; /* static */
}

/* ---- the run ---- */

static bool thread_stalled; /* a thread of this process is stalled */

int measure_run(const struct measure *measure, struct measured *ret, struct why *why)
{
	static struct sink sink = {
		.name = "rows", .add_row = add_row, .tick = tick, .free = free_sink
	};
	struct agent_options agent_options = { .trackers = measure->trackers,
					       .pids = watched_pids,
					       .report_interval_ns = 3600 * NSEC_PER_SEC,
					       .limits = pipeline_limits };
	int err;

	current_measure = measure;
	current_result = ret;
	if (duration_ns == UINT64_MAX)
		duration_ns = measure->default_duration_ns;
	agent_options.duration_ns = duration_ns;
	libbpf_set_print(NULL); /* the trackers handle the conditions that libbpf warns about */
	log_set_level(LOG_LEVEL_WARN);
	stop_block_signals();
	err = agent_new(&agent_options, &agent, why);
	if (err)
		return err;
	err = agent_run(agent, &sink, -1, why);
	end_progress();
	thread_stalled = !agent_free(agent);
	if (!err && !first_tick_ns) { /* Ctrl-C during the start: no result */
		measure_end();
		exit(0);
	}
	if (!err && ret->refused.text[0])
		err = why_fail(why, ENOTSUP, "%s", ret->refused.text);
	if (measure->needs_probes)
		watched_conclude();
	return err;
}

void measure_end(void)
{
	watched_free();
	free(watched_pids.items);
	watched_pids = (struct pid_list){ 0 };
	if (thread_stalled)
		agent_give_back();
}

int measure_flush(struct why *why)
{
	if (fflush(stdout) || ferror(stdout))
		return why_fail(why, EIO, "cannot write to stdout: %s", strerror(errno));
	return 0;
}
