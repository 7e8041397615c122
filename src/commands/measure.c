// SPDX-License-Identifier: Apache-2.0
/* The agent on one process, for a command. See measure.h. */
#include "commands/measure.h"

#include <bpf/libbpf.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/governor.h"
#include "log.h"
#include "pipeline/options.h"
#include "probe/clock.h"
#include "probe/proc.h"
#include "stop.h"
#include "text.h"
#include "trackers/trackers.h"

static struct pid_list pids;
static uint64_t duration_ns = UINT64_MAX; /* not said */

static const struct option options[] = {
	{ .key = "pid",
	  .type = OPTION_PIDS,
	  .target = &pids,
	  .arg = "PID",
	  .help = "the process (host pid); what it starts meanwhile is looked at, too",
	  .letter = 'p' },
	{ .key = "duration",
	  .type = OPTION_SECONDS,
	  .target = &duration_ns,
	  .arg = "S",
	  .help = "for this many seconds (5; 0: until Ctrl-C, which ends it at any time)",
	  .letter = 'd' },
};
const struct option_table measure_options = { options, ARRAY_SIZE(options) };

struct option_table measure_tracker_options(const char *name)
{
	size_t i = 0;

	while (strcmp(all_trackers[i]->name, name) != 0)
		i++;
	return (struct option_table){ all_trackers[i]->options, all_trackers[i]->n_options };
}

int measure_govern_nothing(struct why *why)
{
	const struct option_table tables[] = { governor_options, { 0 } };
	int err = config_set_default(tables, "governor.cpu_percent", "0", why);

	return err ? err : config_set_default(tables, "governor.tracker_cpu_percent", "0", why);
}

/* An interpreter that has just been started is found within milliseconds. */
static const uint64_t FIND_NS = 1200 * NSEC_PER_MSEC;

static const struct measure *wanted;
static struct measured *found;
static uint64_t start_time; /* of the process: tells two users of one pid apart */
static uint64_t first_tick_ns, next_second_ns;
static bool gil_seen;	      /* there is an interpreter whose GIL is watched */
static struct why gil_reason; /* why the GIL is not watched */

/* ---- the process ---- */

/* A number in /proc/PID/status; `missing` where there is none. */
static unsigned int status_of(const char *text, const char *field, unsigned int missing)
{
	const char *line = strstr(text, field);
	unsigned int value;

	return line && sscanf(line + strlen(field), "%u", &value) == 1 ? value : missing;
}

static uint32_t leader_of(uint32_t tid)
{
	char text[4096];

	return proc_read(tid, "status", text, sizeof(text)) < 0 ? tid
								: status_of(text, "\nTgid:", tid);
}

/* Nobody may have asked yet how it ended. (Of a first thread that ended alone, others are there.)
 */
static bool has_ended(uint32_t pid)
{
	char text[4096];

	if (proc_start_time(pid) != start_time || proc_read(pid, "status", text, sizeof(text)) < 0)
		return true;
	return strstr(text, "\nState:\tZ") && status_of(text, "\nThreads:", 1) <= 1;
}

static void read_comm(uint32_t pid, char *buf, size_t size)
{
	char text[64];
	ssize_t len = proc_read(pid, "comm", text, sizeof(text));

	if (len > 0 && text[len - 1] == '\n')
		text[len - 1] = 0;
	text_printable(buf, size, len > 0 ? text : "?");
}

int measure_check(struct measured *ret, struct why *why)
{
	uint32_t pid = pids.n ? pids.items[0] : 0, leader;

	if (pids.n != 1)
		return why_fail(why, EINVAL, "pid: %s: -p PID",
				pids.n ? "one process at a time" : "which process?");
	*ret = (struct measured){ .host_pid = pid };
	start_time = proc_start_time(pid);
	if (!start_time)
		return why_fail(why, ESRCH, "there is no process %u on this host", pid);
	leader = leader_of(pid);
	if (leader != pid)
		return why_fail(why, ESRCH, "%u is a thread of process %u: give that one's pid",
				pid, leader);
	read_comm(pid, ret->comm, sizeof(ret->comm));
	return 0;
}

/* ---- what comes ---- */

static bool text_is(const struct table *table, const void *row, const char *name, const char *text)
{
	char buf[64];

	return !strcmp(column_text(column_find(table, name), row, buf, sizeof(buf)), text);
}

static void on_health(const struct table *table, const void *row)
{
	if (!text_is(table, row, "tracker", "gil_wait") ||
	    !column_uint(column_find(table, "host_pid"), row))
		return;
	if (column_uint(column_find(table, "live"), row)) {
		gil_seen = true;
		gil_reason.text[0] = 0;
		column_text(column_find(table, "method"), row, found->method,
			    sizeof(found->method));
	} else if (column_uint(column_find(table, "host_pid"), row) == found->host_pid) {
		gil_seen = false;
		column_text(column_find(table, "reason"), row, gil_reason.text,
			    sizeof(gil_reason.text));
	}
}

static void on_counts(const struct table *table, const void *row)
{
	static const char *const losses[] = { "lost_ring", "lost_state", "bad_event" };

	for (size_t i = 0; i < wanted->trackers.n; i++) {
		if (!text_is(table, row, "tracker", wanted->trackers.items[i]))
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(losses); k++)
			found->lost += column_uint(column_find(table, losses[k]), row);
	}
}

/* What was seen first and last: probes come before the first tick and go after the last. */
static void widen(const struct table *table, const void *row)
{
	uint64_t start = column_uint(column_find(table, "start_time"), row);
	uint64_t end = column_uint(column_find(table, "end_time"), row);

	if (start && (!found->begin_ns || start < found->begin_ns))
		found->begin_ns = start;
	if (end > found->end_ns)
		found->end_ns = end;
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
		wanted->row(table, row);
	}
}

/* ---- time ---- */

static void say_progress(uint64_t now)
{
	unsigned int seconds = (unsigned int)((now - first_tick_ns) / NSEC_PER_SEC);

	if (!wanted->progress || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[Kprocess %u (%s): %u s", found->host_pid, found->comm, seconds);
	if (duration_ns)
		fprintf(stderr, " of %.0f", (double)duration_ns / 1e9);
	fprintf(stderr, ", Ctrl-C ends it");
	fflush(stderr);
}

static void end_progress(void)
{
	if (wanted->progress && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}

/* As if somebody had pressed Ctrl-C: what came so far is counted. */
static void end_early(void)
{
	kill(getpid(), SIGTERM);
}

static void tick(struct sink *sink, uint64_t now)
{
	(void)sink;
	if (!first_tick_ns)
		first_tick_ns = next_second_ns = now;
	if (!found->begin_ns)
		found->begin_ns = now;
	found->end_ns = now;
	if (wanted->of_gil && !gil_seen && (gil_reason.text[0] || now - first_tick_ns > FIND_NS))
		end_early();
	if (now < next_second_ns)
		return;
	next_second_ns += NSEC_PER_SEC;
	if (!found->gone && has_ended(found->host_pid)) {
		found->gone = true;
		end_early();
	}
	say_progress(now);
	if (wanted->each_second)
		wanted->each_second();
}

static void free_sink(struct sink *sink)
{
	(void)sink; /* static */
}

/* ---- the run ---- */

static int check_gil(struct why *why)
{
	if (!wanted->of_gil || gil_seen)
		return 0;
	if (gil_reason.text[0])
		return why_fail(why, ENOTSUP, "process %u (%s): its GIL cannot be watched: %.400s",
				found->host_pid, found->comm, gil_reason.text);
	if (found->gone)
		return why_fail(why, ESRCH, "process %u (%s) ended before it was looked at",
				found->host_pid, found->comm);
	return why_fail(why, ENOTSUP,
			"process %u (%s) runs no Python: give the interpreter's own pid; "
			"`underspan doctor -p %u` says what is seen of it",
			found->host_pid, found->comm, found->host_pid);
}

static bool held_up; /* a thread of this process does not end */

int measure_run(const struct measure *measure, struct measured *ret, struct why *why)
{
	static struct sink sink = {
		.name = "rows", .add_row = add_row, .tick = tick, .free = free_sink
	};
	struct agent_options agent_options = { .trackers = measure->trackers,
					       .pids = pids,
					       .report_interval_ns = 3600 * NSEC_PER_SEC,
					       .limits = pipeline_limits };
	struct agent *agent = NULL;
	int err;

	wanted = measure;
	found = ret;
	if (duration_ns == UINT64_MAX)
		duration_ns = measure->default_duration_ns;
	agent_options.duration_ns = duration_ns;
	libbpf_set_print(NULL); /* what it warns of is decided about by the trackers */
	log_set_level(LOG_LEVEL_WARN);
	stop_block_signals();
	err = agent_new(&agent_options, &agent, why);
	if (err)
		return err;
	err = agent_run(agent, &sink, -1, why);
	end_progress();
	held_up = !agent_free(agent);
	if (!err && !first_tick_ns) { /* Ctrl-C while it started: there is nothing to tell */
		measure_end();
		exit(0);
	}
	return err ? err : check_gil(why);
}

void measure_end(void)
{
	if (held_up)
		agent_give_back();
}

int measure_flush(struct why *why)
{
	if (fflush(stdout) || ferror(stdout))
		return why_fail(why, EIO, "cannot write to stdout: %s", strerror(errno));
	return 0;
}
