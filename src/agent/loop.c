// SPDX-License-Identifier: Apache-2.0
/* The collector's loop: kernel events in, rows out. See loop.h. */
#include "agent/loop.h"

#include <malloc.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/metrics.h"
#include "agent/notify.h"
#include "agent/other_agents.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/util.h"
#include "process/grace_period.h"
#include "process/process_table.h"
#include "process/processes.h"
#include "rows/names.h"
#include "rows/stack.h"
#include "workers/reader_process.h"
#include "workers/readers.h"

/* BPF programs wake the collector only above a fill level; other records are polled at this
 * interval. */
static const uint64_t POLL_NS = 100 * NSEC_PER_MSEC;
static const uint64_t RESCAN_NS = 5 * NSEC_PER_SEC;

/* ---- rows and health of trackers ---- */

static void add_row(const struct tracker_output *output, const struct tracker_row *row)
{
	struct agent *agent = output->context;

	rows_add(&agent->rows, output->index, row);
}

static void add_tracker_health(const struct tracker_output *output,
			       const struct tracker_health *health)
{
	struct agent *agent = output->context;

	report_health(&agent->report, agent->set.items[output->index].tracker->name, health);
}

void agent_tick_trackers(struct agent *agent, uint64_t now, bool last)
{
	const struct tracker_output output = {
		.add = add_row, .health = add_tracker_health, .last = last, .context = agent
	};

	tracker_set_tick(&agent->set, &output, now);
}

/* ---- ticks ---- */

static int watch_fd_add(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Rescans /proc after lost process events: unreported processes would never be watched. */
static void make_up_for_lost_processes(struct agent *agent, uint64_t now)
{
	uint64_t stats[STAT_MAX], lost;

	if (now < agent->rescan_next_ns)
		return;
	tracker_set_read_stats(agent->set.process_stats_fd, stats);
	if (stats[STAT_LOST_RING] == agent->processes_lost)
		return;
	lost = stats[STAT_LOST_RING] - agent->processes_lost;
	log_warn("%llu event%s of processes %s lost: looking at all processes again",
		 (unsigned long long)lost, plural(lost), counted(lost, "was", "were"));
	agent->processes_lost = stats[STAT_LOST_RING];
	agent->rescan_next_ns = now + RESCAN_NS;
	processes_rescan();
}

/* Repeats rows of ebpf_probe_health, which expire before long-lived processes. */
static void repeat_health(struct agent *agent, uint64_t now)
{
	if (!agent->health_reported_ns)
		agent->health_reported_ns = now;
	if (!agent->options.health_interval_ns ||
	    now < agent->health_reported_ns + agent->options.health_interval_ns)
		return;
	agent->health_reported_ns = now;
	report_trackers(&agent->report);
	grace_period_repeat();
}

static void run_governor(struct agent *agent, uint64_t now)
{
	uint64_t rows[MAX_TRACKERS];

	for (size_t i = 0; i < agent->set.n; i++)
		rows[i] = agent->set.items[i].rows;
	if (governor_tick(&agent->governor, rows, now))
		report_outages(&agent->report, now);
}

/* Returns freed memory: loading objects, reading symbols and finding Pythons need far more than is
 * kept. */
static void give_memory_back(struct agent *agent, uint64_t now)
{
	if (!agent->memory_back_next_ns)
		agent->memory_back_next_ns = now + 2 * NSEC_PER_SEC;
	if (now < agent->memory_back_next_ns)
		return;
	agent->memory_back_next_ns = now + 60 * NSEC_PER_SEC;
	malloc_trim(0);
}

static int agent_tick(struct agent *agent, uint64_t now, uint64_t *next_second, struct why *why)
{
	int err;

	governor_work_begins(&agent->governor);
	tracker_set_consume(&agent->set, now + POLL_NS);
	rows_tick(&agent->rows);
	governor_work_ends(&agent->governor);
	run_governor(agent, now);
	processes_tick(now);
	names_tick(now);
	metrics_tick();
	if (agent->ready)
		notify_alive(now);
	err = pipeline_tick(agent->pipeline, why);
	if (err || now < *next_second)
		return err;
	*next_second = now + NSEC_PER_SEC;
	if (!reader_processes_can_start())
		return why_fail(
			why, ECHILD,
			"the parent of the reader processes ended: look for an out-of-memory "
			"kill in the kernel's log");
	clock_calibrate();
	report_clock(&agent->report);
	metrics_run(); /* handles connection time-outs */
	other_agents_tick(now);
	binaries_tick(now);
	process_table_tick(now);
	names_trim();
	stack_trim();
	make_up_for_lost_processes(agent, now);
	governor_work_begins(&agent->governor);
	agent_tick_trackers(agent, now, false);
	governor_work_ends(&agent->governor);
	report_tick(&agent->report, now);
	repeat_health(agent, now);
	give_memory_back(agent, now);
	return 0;
}

static void say_ready(const struct agent *agent)
{
	char words[100];

	snprintf(words, sizeof(words), "watching %zu Python %s with %zu tracker%s",
		 processes_count(), counted(processes_count(), "process", "processes"),
		 agent->set.n, plural(agent->set.n));
	log_info("ready: %s", words);
	if (agent->options.pids.n && !processes_count())
		log_info("--pid: process %u runs no Python so far, nor does a descendant: see "
			 "`underspan doctor -p %u`",
			 agent->options.pids.items[0], agent->options.pids.items[0]);
	notify_ready(words);
}

/* Nothing is detached during a reload: no event is lost. */
static void reload_options(struct agent *agent)
{
	struct why why;

	if (!agent->options.reload) {
		log_info("SIGHUP: there is nothing to reload");
		return;
	}
	notify_reloading();
	if (agent->options.reload(&agent->options, &why)) {
		log_error("reload: nothing has changed: %s", why.text);
	} else {
		tracker_set_options_changed(&agent->set);
		pipeline_change_limits(agent->pipeline, &agent->options.limits);
		pipeline_sink_changed(agent->pipeline);
		agent->report.interval_ns = agent->options.report_interval_ns;
	}
	say_ready(agent);
}

static void on_signals(struct agent *agent)
{
	struct signalfd_siginfo info;

	while (read(agent->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			reload_options(agent);
			continue;
		}
		stop_begins();
		agent->stop = true;
	}
}

static void wait_and_handle(struct agent *agent, int epoll_fd, int watch_fd, uint64_t wait_ns)
{
	struct epoll_event events[MAX_TRACKERS + 8];
	int n = epoll_wait(epoll_fd, events, ARRAY_SIZE(events),
			   (int)((wait_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC));

	for (int i = 0; i < n; i++) {
		int fd = events[i].data.fd;

		if (fd == agent->signal_fd) {
			on_signals(agent);
		} else if (fd == watch_fd) {
			agent->stop = agent->watch_fd_ended = true;
		} else if (fd == agent->clock_fd) {
			clock_watch_fired(fd);
			report_clock(&agent->report);
		} else if (fd == metrics_fd()) {
			metrics_run();
		}
		/* ring buffers and readers are handled by the following tick */
	}
}

static int watch_all(struct agent *agent, int epoll_fd, int watch_fd)
{
	int err = watch_fd_add(epoll_fd, agent->signal_fd);

	for (size_t i = 0; !err && i < agent->set.n_rings; i++)
		err = watch_fd_add(epoll_fd, agent->set.rings[i].ring.fd);
	if (!err)
		err = watch_fd_add(epoll_fd, readers_fd());
	if (!err && watch_fd >= 0)
		err = watch_fd_add(epoll_fd, watch_fd);
	if (!err && agent->clock_fd >= 0)
		err = watch_fd_add(epoll_fd, agent->clock_fd);
	if (!err && metrics_fd() >= 0)
		err = watch_fd_add(epoll_fd, metrics_fd());
	return err;
}

/* Examines existing processes and sets their probes: rows are produced from here on. */
static void get_ready(struct agent *agent, uint64_t now)
{
	/* loading objects and reading symbols needed far more than is kept */
	malloc_trim(0);
	say_ready(agent);
	agent->ready = true;
	if (agent->options.duration_ns)
		agent->end_ns = now + agent->options.duration_ns;
}

int agent_loop(struct agent *agent, int watch_fd, struct why *why)
{
	uint64_t next_second = 0;
	AUTO_CLOSE int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int err = epoll_fd < 0 ? -errno : watch_all(agent, epoll_fd, watch_fd);

	if (err)
		return why_fail(why, -err, "cannot wait for events: %s", strerror(-err));
	if (stop_requested()) /* stopped during the start, before readiness */
		return 0;
	while (!agent->stop) {
		uint64_t now = clock_monotonic_ns();

		err = agent_tick(agent, now, &next_second, why);
		if (err || (agent->end_ns && now >= agent->end_ns))
			break;
		if (!agent->ready && processes_scanned())
			get_ready(agent, now);
		wait_and_handle(agent, epoll_fd, watch_fd,
				names_due_in(now, processes_due_in(now, POLL_NS)));
	}
	return err;
}
