// SPDX-License-Identifier: Apache-2.0
/* The collector: kernel events in, rows out. See agent.h. */
#include "agent/agent.h"

#include <malloc.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/governor.h"
#include "agent/memory.h"
#include "agent/metrics.h"
#include "agent/notify.h"
#include "host/privileges.h"
#include "agent/report.h"
#include "agent/rows.h"
#include "base/log.h"
#include "rows/enrich.h"
#include "base/clock.h"
#include "host/kernel.h"
#include "host/memory_limit.h"
#include "process/processes.h"
#include "rows/names.h"
#include "rows/stack.h"
#include "process/grace_period.h"
#include "process/process_table.h"
#include "workers/reader_process.h"
#include "workers/readers.h"
#include "base/stop.h"
#include "trackers/trackers.h"

/* BPF programs wake the collector only above a fill level; other records are polled at this
 * interval. */
static const uint64_t POLL_NS = 100 * NSEC_PER_MSEC;
static const uint64_t RESCAN_NS = 5 * NSEC_PER_SEC;
/*
 * SIGTERM must end the agent within 5 s, also on a busy machine; cancelling a request takes up to a
 * second. Spooled rows survive an unresponsive server.
 */
static const uint64_t FINISH_NS = 3500 * NSEC_PER_MSEC, FINISH_SPOOLED_NS = 2500 * NSEC_PER_MSEC,
		      FINISH_MIN_NS = 500 * NSEC_PER_MSEC;

struct agent {
	struct agent_options options;
	struct tracker_set set;
	bool set_open;
	struct pipeline *pipeline;
	const struct table *tables[AGENT_TABLES_MAX]; /* the pipeline's */
	size_t n_tables;
	struct rows rows;
	struct report report;
	struct governor governor;
	bool started, stop, watch_fd_ended;
	int signal_fd, clock_fd; /* of the loop */
	bool ready;
	uint64_t end_ns; /* 0: none */
	uint64_t processes_lost, rescan_next_ns;
	uint64_t health_reported_ns; /* 0: never */
};

static struct agent *the_agent; /* for the hooks of discovery, a singleton */

/* ---- trackers' own rows ---- */

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

static void tick_trackers(struct agent *agent, uint64_t now, bool last)
{
	const struct tracker_output output = {
		.add = add_row, .health = add_tracker_health, .last = last, .context = agent
	};

	tracker_set_tick(&agent->set, &output, now);
}

/* ---- discovery's hooks ---- */

static void on_process(const struct process *process)
{
	tracker_set_process_appeared(&the_agent->set, process);
}

static void on_process_reportable(const struct process *process)
{
	report_process(&the_agent->report, process);
}

static void on_process_checked(const struct process *process)
{
	report_python(&the_agent->report, process);
}

static void on_process_gone(uint32_t host_pid)
{
	tracker_set_process_gone(&the_agent->set, host_pid);
	enrich_process_gone(host_pid);
}

/* ---- start and stop ---- */

/*
 * Large short-lived blocks (batches, files, maps) must not grow the heap. By default glibc raises
 * its mmap threshold to the size of any freed block, and each thread has an arena that never
 * shrinks. RSS in `make soak`: 14 MB with these settings, 28 MB without.
 */
static void keep_heap_small(void)
{
	enum { LARGE = 256 << 10, HEAPS = 2 };

	mallopt(M_MMAP_THRESHOLD, LARGE);
	mallopt(M_ARENA_MAX, HEAPS);
}

int agent_new(const struct agent_options *options, struct agent **ret_agent, struct why *why)
{
	struct agent *agent;
	int err = kernel_check(why);

	if (err)
		return err;
	keep_heap_small();
	agent = calloc(1, sizeof(*agent));
	if (!agent)
		return why_fail(why, ENOMEM, "out of memory");
	agent->options = *options;
	err = reader_processes_start(memory_limit(), why);
	if (err) {
		free(agent);
		return err;
	}
	agent->set_open = true;
	clock_calibrate();
	enrich_init(options->host);
	/* the longest part of the start; nothing is attached, written or started so far */
	stop_at_once_begin(reader_processes_kill);
	err = tracker_set_open(&agent->set, &options->trackers, options->pids.n > 0,
			       memory_share_limit(&agent->options.limits), rows_on_event,
			       &agent->rows, why);
	stop_at_once_end();
	if (err) {
		agent_free(agent);
		return err;
	}
	the_agent = agent;
	*ret_agent = agent;
	return 0;
}

/* Whose rows are dropped first when memory is short. */
static void rank_tables(struct agent *agent)
{
	for (size_t i = 0; i < agent->set.n; i++) {
		const struct running_tracker *running = &agent->set.items[i];
		unsigned int rank = tracker_shed_rank(running->tracker,
						      &agent->options.limits.shed_first);

		pipeline_set_shed_rank(agent->pipeline, running->tables[0], rank);
		if (running->tracker->second_table)
			pipeline_set_shed_rank(agent->pipeline, running->tables[1], rank);
	}
}

static int start(struct agent *agent, struct sink *sink, struct why *why)
{
	static const struct processes_hooks hooks = {
		.tracking = { .appeared = on_process,
			      .reportable = on_process_reportable,
			      .gone = on_process_gone,
			      .checked = on_process_checked },
		.thread_started = names_thread_started,
	};
	int err;

	agent->n_tables = agent_tables_list(&agent->set, agent->tables);
	err = pipeline_new(agent->tables, agent->n_tables, &agent->options.limits, sink,
			   &agent->pipeline, why);
	if (err) {
		sink->free(sink);
		return err;
	}
	rows_start(&agent->rows, &agent->set, agent->pipeline);
	rank_tables(agent);
	report_start(&agent->report, &agent->set, &agent->rows, &agent->governor, agent->pipeline,
		     agent->options.report_interval_ns);
	err = metrics_start(&agent->report.subjects, why);
	if (err)
		return err;
	binaries_init(&(struct binaries_hooks){ tracker_set_attach_binary, tracker_set_leave_binary,
						&agent->set });
	/* attach before the scan: processes starting meanwhile are seen by events or by the scan */
	err = tracker_set_attach(&agent->set, why);
	if (!err)
		err = processes_start(&agent->options.pids, &hooks, why);
	if (!err)
		report_trackers(&agent->report);
	governor_start(&agent->governor, &agent->set);
	agent->started = err == 0;
	return err;
}

static void stop(struct agent *agent)
{
	if (agent->started)
		governor_stop(&agent->governor);
	/* producers first, then remaining records; probes in binaries are removed later */
	tracker_set_detach(&agent->set);
	tracker_set_consume(&agent->set, UINT64_MAX);
	if (agent->started)
		tick_trackers(agent, clock_monotonic_ns(), true);
	tracker_set_consume(&agent->set, UINT64_MAX); /* ticks may produce events */
	rows_finish(&agent->rows);
}

/* ---- the loop ---- */

static int watch_fd_add(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Rescans /proc after lost process events: unreported processes would never be watched. */
static void make_up_for_lost_processes(struct agent *agent, uint64_t now)
{
	uint64_t stats[STAT_MAX];

	if (now < agent->rescan_next_ns)
		return;
	tracker_set_read_stats(agent->set.process_stats_fd, stats);
	if (stats[STAT_LOST_RING] == agent->processes_lost)
		return;
	log_warn("%llu events of processes were lost: looking at all processes again",
		 (unsigned long long)(stats[STAT_LOST_RING] - agent->processes_lost));
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
	governor_tick(&agent->governor, rows, now);
}

/* Returns freed memory: loading objects, reading symbols and finding Pythons need far more than is
 * kept. */
static void give_memory_back(uint64_t now)
{
	static uint64_t due_ns;

	if (!due_ns)
		due_ns = now + 2 * NSEC_PER_SEC;
	if (now < due_ns)
		return;
	due_ns = now + 60 * NSEC_PER_SEC;
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
	binaries_tick(now);
	process_table_tick(now);
	names_trim();
	stack_trim();
	make_up_for_lost_processes(agent, now);
	governor_work_begins(&agent->governor);
	tick_trackers(agent, now, false);
	governor_work_ends(&agent->governor);
	report_tick(&agent->report, now);
	repeat_health(agent, now);
	give_memory_back(now);
	return 0;
}

static void say_ready(const struct agent *agent)
{
	char words[100];

	snprintf(words, sizeof(words), "watching %zu Python processes with %zu trackers",
		 processes_count(), agent->set.n);
	log_info("ready: %s", words);
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
		err = watch_fd_add(epoll_fd, ring_buffer__epoll_fd(agent->set.rings[i]));
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

static int run_loop(struct agent *agent, int watch_fd, struct why *why)
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

/* Also sees signals pending since stop_block_signals(). */
static int open_signal_fd(struct why *why)
{
	sigset_t signals = stop_block_signals();
	int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);

	return fd < 0 ? why_fail(why, errno, "cannot wait for signals: %s", strerror(errno)) : fd;
}

static void drop_privileges(const struct agent *agent, bool child)
{
	struct privileges_needs needs = { .stats = governor_is_on(), .child = child };

	for (size_t i = 0; i < agent->set.n; i++)
		needs.uprobes |= tracker_attaches(agent->set.items[i].tracker);
	privileges_drop(&needs);
}

/* Deadline to deliver the last rows; `stopped_ns`: end of the loop. */
static uint64_t finish_deadline(const struct agent *agent, uint64_t stopped_ns)
{
	uint64_t finish = agent->options.limits.spool.directory ? FINISH_SPOOLED_NS : FINISH_NS;
	uint64_t least = clock_monotonic_ns() + FINISH_MIN_NS, usual = stopped_ns + finish;

	return usual > least ? usual : least;
}

int agent_run(struct agent *agent, struct sink *sink, int watch_fd, struct why *why)
{
	AUTO_CLOSE int signal_fd = open_signal_fd(why), clock_fd = clock_watch();
	int err, undelivered;
	uint64_t stopped_ns;

	if (signal_fd < 0 || stop_requested()) {
		sink->free(sink);
		return signal_fd < 0 ? signal_fd : 0;
	}
	agent->signal_fd = signal_fd;
	agent->clock_fd = clock_fd; /* -1: clock steps are detected every second */
	notify_init();
	drop_privileges(agent, watch_fd >= 0);
	err = start(agent, sink, why);
	if (!err)
		err = run_loop(agent, watch_fd, why);
	stopped_ns = clock_monotonic_ns();
	stop_begins();
	notify_stopping();
	stop(agent);
	if (!agent->pipeline)
		return err;
	if (!err) {
		processes_end();
		report_last(&agent->report, clock_monotonic_ns());
	}
	/* all rows are made: probes are removed while the last rows are sent */
	processes_stop();
	binaries_retire_all();
	undelivered = pipeline_finish(agent->pipeline, finish_deadline(agent, stopped_ns),
				      err ? NULL : why);
	if (!err && agent->watch_fd_ended)
		return why_fail(why, ECHILD,
				"the embedded store ended: see the store's message above");
	return err ? err : undelivered;
}

bool agent_free(struct agent *agent)
{
	bool all_read;

	if (!agent)
		return true;
	metrics_stop();
	processes_stop();
	all_read = readers_stop();
	reader_processes_stop();
	pipeline_free(agent->pipeline);
	names_done();
	process_table_done();
	/* the kernel sets and removes probes under locks that a process may hold for a long time */
	if (!binaries_done() || !all_read)
		return false;
	if (agent->set_open)
		tracker_set_close(&agent->set);
	enrich_done();
	the_agent = NULL;
	free(agent);
	return true;
}

void agent_give_back(void)
{
	/* the remaining thread shares the descriptors: later use fails */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
}
