// SPDX-License-Identifier: Apache-2.0
/* Start, stop and life of the agent. See agent.h. */
#include "agent/agent.h"

#include <malloc.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/memory.h"
#include "agent/loop.h"
#include "agent/metrics.h"
#include "agent/notify.h"
#include "host/privileges.h"
#include "base/log.h"
#include "rows/enrich.h"
#include "rows/identities.h"
#include "base/clock.h"
#include "host/kernel.h"
#include "host/memory_limit.h"
#include "process/processes.h"
#include "rows/names.h"
#include "rows/services.h"
#include "process/process_table.h"
#include "workers/reader_process.h"
#include "workers/readers.h"
#include "base/stop.h"
#include "base/stop_guard.h"

/*
 * SIGTERM must end the agent within 5 s, also on a busy machine; cancelling a request takes up to a
 * second. Spooled rows survive an unresponsive server.
 */
static const uint64_t FINISH_NS = 3200 * NSEC_PER_MSEC, FINISH_SPOOLED_NS = 2500 * NSEC_PER_MSEC,
		      FINISH_MIN_NS = 500 * NSEC_PER_MSEC;

/* For the removal of probes, which the kernel may hold up, and for the records of those left. */
static const uint64_t DETACH_NS = 2 * NSEC_PER_SEC, DRAIN_NS = 100 * NSEC_PER_MSEC;

static struct agent *the_agent; /* for the hooks of discovery, a singleton */

/* ---- discovery's hooks ---- */

static void on_process(const struct process *process)
{
	services_refresh(process->host_pid);
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
	identities_refresh(host_pid);
	services_refresh(host_pid);
}

/* ---- start and stop ---- */

enum { HEAPS = 2, LARGE = 256 << 10, TRIM = 128 << 10, LARGE_AT_START = 32 << 20 };

/* below, the peak counts more than the time: 12 MB more */
static const uint64_t ROOM_TO_START = 256 << 20;

/*
 * libbpf reads the kernel's types, 5 to 10 MB, for each object that it loads. The same pages serve
 * all of them: in a virtual machine a fresh page may cost 20 us, 60 ms for each object.
 */
static void keep_heap_for_loading(void)
{
	mallopt(M_ARENA_MAX, HEAPS);
	if (memory_limit() < ROOM_TO_START) {
		mallopt(M_MMAP_THRESHOLD, LARGE);
		return;
	}
	mallopt(M_MMAP_THRESHOLD, LARGE_AT_START);
	mallopt(M_TRIM_THRESHOLD, 2 * LARGE_AT_START);
}

/*
 * Large short-lived blocks (batches, files, maps) must not grow the heap. By default glibc raises
 * its mmap threshold to the size of any freed block, and each thread has an arena that never
 * shrinks. RSS in `make soak`: 14 MB with these settings, 28 MB without.
 */
static void keep_heap_small(void)
{
	mallopt(M_MMAP_THRESHOLD, LARGE);
	mallopt(M_TRIM_THRESHOLD, TRIM);
	malloc_trim(0);
}

int agent_new(const struct agent_options *options, struct agent **ret_agent, struct why *why)
{
	struct why limited;
	struct agent *agent;
	int err;

	if (!kernel_opens_files(&limited))
		log_warn("%s", limited.text);
	err = kernel_check(why);
	if (err)
		return err;
	if (!kernel_reads_processes(&limited))
		log_warn("%s", limited.text);
	keep_heap_for_loading();
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
	enrich_init(options->host, NULL);
	/* the longest part of the start; nothing is attached, written or started so far */
	stop_at_once_begin(reader_processes_kill);
	err = tracker_set_open(&agent->set, &options->trackers, options->pids.n > 0,
			       memory_share_limit(&agent->options.limits), rows_on_event,
			       &agent->rows, why);
	stop_at_once_end();
	keep_heap_small();
	if (err) {
		agent_free(agent);
		return err;
	}
	the_agent = agent;
	*ret_agent = agent;
	return 0;
}

/* The order in which tables lose rows when memory is short. */
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
	governor_start(&agent->governor, &agent->set, &agent->options.limits.shed_first);
	agent->started = err == 0;
	return err;
}

/* Probes that are left produce events without end. */
static uint64_t drain_deadline(const struct agent *agent)
{
	return agent->probes_left ? clock_monotonic_ns() + DRAIN_NS : UINT64_MAX;
}

static void stop(struct agent *agent)
{
	if (agent->started)
		governor_stop(&agent->governor);
	/* producers first, then remaining records; probes in binaries are removed later */
	agent->probes_left = !tracker_set_detach(&agent->set, DETACH_NS);
	if (agent->probes_left)
		log_error("the kernel does not remove probes in time: later events are no rows");
	tracker_set_consume(&agent->set, drain_deadline(agent));
	if (agent->started)
		agent_tick_trackers(agent, clock_monotonic_ns(), true);
	tracker_set_consume(&agent->set, drain_deadline(agent)); /* ticks may produce events */
	rows_finish(&agent->rows);
}

/* ---- run ---- */

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

/* On the guard's thread: the main thread may be anywhere, and has its locks. */
static void end_late(void)
{
	log_error("the main thread does not come back: ends without waiting for it; rows that were "
		  "neither delivered nor in the spool are lost");
	reader_processes_kill();
}

static void guard_the_end(void)
{
	struct why why;

	if (stop_guard_start(end_late, &why))
		log_warn("%s: nothing ends the agent if its main thread does not come back",
			 why.text);
}

/* Deadline to deliver the last rows; `stopped_ns`: end of the loop. */
static uint64_t finish_deadline(const struct agent *agent, uint64_t stopped_ns)
{
	uint64_t finish = agent->options.limits.spool.directory ? FINISH_SPOOLED_NS : FINISH_NS;
	uint64_t least = clock_monotonic_ns() + FINISH_MIN_NS, usual = stopped_ns + finish;

	/* the kernel will take its time to remove those probes at the end of the process */
	return usual > least && !agent->probes_left ? usual : least;
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
	if (agent->options.ends_in_time)
		guard_the_end();
	err = start(agent, sink, why);
	if (!err)
		err = agent_loop(agent, watch_fd, why);
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

static const struct running_tracker *find_tracker(const struct agent *agent, const char *name)
{
	for (size_t i = 0; i < agent->set.n; i++) {
		if (!strcmp(agent->set.items[i].tracker->name, name))
			return &agent->set.items[i];
	}
	return NULL;
}

bool agent_measures(const struct agent *agent, const char *tracker)
{
	const struct running_tracker *running = find_tracker(agent, tracker);

	return running && !running->dead && !running->out_since_ns;
}

bool agent_has_out(const struct agent *agent, const char *tracker)
{
	const struct running_tracker *running = find_tracker(agent, tracker);

	return running && !running->dead && running->out_since_ns;
}

bool agent_free(struct agent *agent)
{
	bool all_read, all_sent;

	if (!agent)
		return true;
	metrics_stop();
	processes_stop();
	all_read = readers_stop();
	reader_processes_stop();
	all_sent = pipeline_free(agent->pipeline);
	names_done();
	process_table_done();
	/* the kernel sets and removes probes under locks that a process may hold for a long time */
	if (agent->probes_left || !binaries_done() || !all_read || !all_sent)
		return false;
	if (agent->set_open)
		tracker_set_close(&agent->set);
	services_free();
	identities_free();
	the_agent = NULL;
	free(agent);
	return true;
}

void agent_give_back(void)
{
	/* the remaining thread shares the descriptors: later use fails */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
}
