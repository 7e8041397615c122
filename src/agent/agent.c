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
#include "agent/privileges.h"
#include "agent/report.h"
#include "agent/rows.h"
#include "log.h"
#include "pipeline/enrich.h"
#include "probe/clock.h"
#include "probe/kernel.h"
#include "probe/processes.h"
#include "python/names.h"
#include "python/target.h"
#include "readers.h"
#include "stop.h"
#include "trackers/trackers.h"

/* The BPF side wakes the collector only when much is waiting: the rest is fetched this often. */
static const uint64_t POLL_NS = 100 * NSEC_PER_MSEC;
static const uint64_t RESCAN_NS = 5 * NSEC_PER_SEC;
/*
 * SIGTERM must end the agent within 5 s, also on a busy machine: what is under way then takes up to
 * one to be cancelled. Rows that are in a spool are not lost with a server that does not answer.
 */
static const uint64_t FINISH_NS = 3500 * NSEC_PER_MSEC, FINISH_SPOOLED_NS = 2500 * NSEC_PER_MSEC,
		      FINISH_MIN_NS = 500 * NSEC_PER_MSEC;

struct agent {
	struct agent_options options;
	struct tracker_set set;
	bool set_open;
	struct pipeline *pipeline;
	/* the pipeline's: the trackers' in order, the agent's own two, the trackers' second ones */
	const struct table *tables[2 * MAX_TRACKERS + 2];
	size_t n_tables;
	struct report report;
	struct governor governor;
	bool started, stop, watch_fd_ended;
	int signal_fd, clock_fd; /* of the loop */
	bool ready;
	uint64_t end_ns; /* 0: none */
	uint64_t processes_lost, rescan_next_ns;
};

static struct agent *the_agent; /* for the hooks of discovery, which there is one of */

/* ---- trackers' own rows ---- */

static void add_tracker_health(const struct tracker_output *output,
			       const struct tracker_health *health)
{
	struct agent *agent = output->context;

	report_health(&agent->report, agent->set.items[output->index].tracker->name, health);
}

static void tick_trackers(struct agent *agent, uint64_t now, bool last)
{
	const struct tracker_output output = {
		.add = rows_add, .health = add_tracker_health, .last = last, .context = agent
	};

	tracker_set_tick(&agent->set, &output, now);
}

/* ---- discovery's hooks ---- */

static void on_process(const struct process *process)
{
	target_gone(process->host_pid); /* with --pid, nobody says that it was another program */
	tracker_set_process_appeared(&the_agent->set, process);
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
	target_gone(host_pid);
}

/* ---- life ---- */

/*
 * What is large and of short life (a batch, a file that is read, maps of a process) must not widen
 * the heap. Without this the allocator takes a block of any size that was freed once for one that
 * is usual, and keeps its like; and each thread has a heap of its own that stays as large as it
 * ever was. `make soak` holds 14 MB with it and 28 MB without.
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
	agent->set_open = true;
	clock_calibrate();
	enrich_init(options->host);
	stop_at_once_begin(); /* most of the start: nothing is attached, written or started yet */
	err = tracker_set_open(&agent->set, &options->trackers, options->pids.n > 0,
			       memory_share_limit(&agent->options.limits), rows_on_event, NULL,
			       why);
	stop_at_once_end();
	if (err) {
		agent_free(agent);
		return err;
	}
	the_agent = agent;
	*ret_agent = agent;
	return 0;
}

static void list_tables(struct agent *agent)
{
	size_t n = agent->set.n;

	for (size_t i = 0; i < n; i++)
		agent->tables[i] = &agent->set.items[i].tracker->table;
	agent->tables[n++] = &agent_table;
	agent->tables[n++] = &probe_health_table;
	for (size_t i = 0; i < agent->set.n; i++) {
		agent->set.items[i].second_table = n;
		if (agent->set.items[i].tracker->second_table)
			agent->tables[n++] = agent->set.items[i].tracker->second_table;
	}
	agent->n_tables = n;
}

static int start(struct agent *agent, struct sink *sink, struct why *why)
{
	static const struct processes_hooks hooks = { on_process, on_process_gone,
						      names_thread_started, on_process_checked };
	int err;

	list_tables(agent);
	err = pipeline_new(agent->tables, agent->n_tables, &agent->options.limits, sink,
			   &agent->pipeline, why);
	if (err) {
		sink->free(sink);
		return err;
	}
	rows_start(&agent->set, agent->pipeline);
	report_start(&agent->report, &agent->set, &agent->governor, agent->pipeline,
		     agent->options.report_interval_ns);
	err = metrics_start(&agent->report.subjects, why);
	if (err)
		return err;
	binaries_init(&(struct binaries_hooks){ tracker_set_attach_binary, tracker_set_leave_binary,
						&agent->set });
	/* attached before the scan: what starts while /proc is read is seen by one of the two */
	err = tracker_set_attach(&agent->set, why);
	if (!err)
		err = processes_start(agent->set.processes_fd, &agent->options.pids, &hooks, why);
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
	/* producers first, then what they left behind; the probes in binaries are removed later */
	tracker_set_detach(&agent->set);
	tracker_set_consume(&agent->set, UINT64_MAX);
	if (agent->started)
		tick_trackers(agent, clock_monotonic_ns(), true);
	tracker_set_consume(&agent->set, UINT64_MAX); /* a tick may make events */
	rows_finish();
}

/* ---- the loop ---- */

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* A process that nobody told of would never be watched, and nobody would know. */
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

static void govern(struct agent *agent, uint64_t now)
{
	uint64_t rows[MAX_TRACKERS];

	for (size_t i = 0; i < agent->set.n; i++)
		rows[i] = agent->set.items[i].rows;
	governor_tick(&agent->governor, rows, now);
}

/* Loading objects, reading symbols and finding Pythons take many times the memory that is kept. */
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

static int tick(struct agent *agent, uint64_t now, uint64_t *next_second, struct why *why)
{
	int err;

	governor_work_begins(&agent->governor);
	tracker_set_consume(&agent->set, now + POLL_NS);
	rows_tick();
	governor_work_ends(&agent->governor);
	govern(agent, now);
	processes_tick(now);
	names_tick(now);
	if (agent->ready)
		notify_alive(now);
	err = pipeline_tick(agent->pipeline, why);
	if (err || now < *next_second)
		return err;
	*next_second = now + NSEC_PER_SEC;
	clock_calibrate();
	report_clock(&agent->report);
	metrics_run(); /* time-outs of connections */
	binaries_tick(now);
	targets_tick(now);
	make_up_for_lost_processes(agent, now);
	governor_work_begins(&agent->governor);
	tick_trackers(agent, now, false);
	governor_work_ends(&agent->governor);
	report_tick(&agent->report, now);
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

/* Nothing is detached meanwhile: no event is lost. */
static void reload(struct agent *agent)
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
			reload(agent);
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
		/* the ring buffers' fds and the readers': the tick that follows sees to them */
	}
}

static int watch_all(struct agent *agent, int epoll_fd, int watch_fd)
{
	int err = watch(epoll_fd, agent->signal_fd);

	for (size_t i = 0; !err && i < agent->set.n_rings; i++)
		err = watch(epoll_fd, ring_buffer__epoll_fd(agent->set.rings[i]));
	if (!err)
		err = watch(epoll_fd, readers_fd());
	if (!err && watch_fd >= 0)
		err = watch(epoll_fd, watch_fd);
	if (!err && agent->clock_fd >= 0)
		err = watch(epoll_fd, agent->clock_fd);
	if (!err && metrics_fd() >= 0)
		err = watch(epoll_fd, metrics_fd());
	return err;
}

/* Those that were there before are looked at, and their probes set: from here on rows come. */
static void get_ready(struct agent *agent, uint64_t now)
{
	/* loading objects and reading symbols took many times what is kept */
	malloc_trim(0);
	say_ready(agent);
	agent->ready = true;
	if (agent->options.duration_ns)
		agent->end_ns = now + agent->options.duration_ns;
}

static int loop(struct agent *agent, int watch_fd, struct why *why)
{
	uint64_t next_second = 0;
	AUTO_CLOSE int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int err = epoll_fd < 0 ? -errno : watch_all(agent, epoll_fd, watch_fd);

	if (err)
		return why_fail(why, -err, "cannot wait for events: %s", strerror(-err));
	if (stop_requested()) /* while it started: it never was ready */
		return 0;
	while (!agent->stop) {
		uint64_t now = clock_monotonic_ns();

		err = tick(agent, now, &next_second, why);
		if (err || (agent->end_ns && now >= agent->end_ns))
			break;
		if (!agent->ready && processes_settled())
			get_ready(agent, now);
		wait_and_handle(agent, epoll_fd, watch_fd,
				names_due_in(now, processes_due_in(now, POLL_NS)));
	}
	return err;
}

/* Pending signals are seen here too: stop_block_signals() may have been called long ago. */
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
		needs.uprobes |= agent->set.items[i].tracker->attach_binary != NULL;
	privileges_drop(&needs);
}

/* For delivering the last rows, `stopped_ns` being when the loop ended. */
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
	agent->clock_fd = clock_fd; /* or none: then steps are seen every second */
	notify_init();
	drop_privileges(agent, watch_fd >= 0);
	err = start(agent, sink, why);
	if (!err)
		err = loop(agent, watch_fd, why);
	stopped_ns = clock_monotonic_ns();
	stop_begins();
	notify_stopping();
	stop(agent);
	if (!agent->pipeline)
		return err;
	if (!err)
		report_last(&agent->report, clock_monotonic_ns());
	/* all rows are made: the probes go while the last ones are sent */
	processes_stop();
	binaries_leave_all();
	undelivered = pipeline_finish(agent->pipeline, finish_deadline(agent, stopped_ns),
				      err ? NULL : why);
	if (!err && agent->watch_fd_ended)
		return why_fail(why, ECHILD, "the embedded store ended; its own message is above");
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
	pipeline_free(agent->pipeline);
	names_done();
	targets_done();
	binaries_done();
	if (!all_read) /* what is held up may go on any moment, and set a probe */
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
	/* the thread has the same files; should it get its answer now, it finds none */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
}
