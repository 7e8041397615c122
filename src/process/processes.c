// SPDX-License-Identifier: Apache-2.0
/* Which processes are discovered, tracked and dropped, and when. See processes.h. */
#include "process/processes.h"

#include "base/stop.h"
#include "host/proc.h"
#include "process/binaries.h"
#include "process/chosen.h"
#include "process/discoveries.h"
#include "process/grace_period.h"
#include "process/process_table.h"
#include "process/state_check.h"
#include "process/young.h"

static const uint64_t RESCAN_NS = 2 * NSEC_PER_SEC;

static uint64_t rescan_next_ns;
static void (*thread_started)(const struct process_event *event);

/* ---- events ---- */

/* An exec() without event: a running discovery may have found the previous program. */
static void on_survived_exec(uint32_t host_pid)
{
	struct process *p = process_find(host_pid);

	if (p && !p->file.unanswered)
		tracking_end(host_pid);
	discoveries_outdate(host_pid);
	discover(host_pid, false);
}

static void on_exec(uint32_t host_pid, const struct process *p)
{
	if (p) /* another program; only chosen processes stay in the map */
		tracking_end(host_pid);
	if (chosen_includes(host_pid))
		discover(host_pid, true);
}

void processes_handle(const struct process_event *event)
{
	const struct process *p = process_find(event->host_pid), *parent;

	switch (event->kind) {
	case PROCESS_EXEC:
		on_exec(event->host_pid, p);
		break;
	case PROCESS_FORK:
		parent = process_find(event->parent_host_pid);
		/* an exec() of the child may already be handled, which is newer */
		if (parent && !p && !discoveries_pending(event->host_pid))
			tracking_fork(event->host_pid, parent);
		break;
	case PROCESS_THREAD:
		if (p && thread_started)
			thread_started(event);
		break;
	case PROCESS_EXIT:
		tracking_end(event->host_pid);
		break;
	}
}

/* ---- scans ---- */

static void scan_one(uint32_t pid, void *context)
{
	(void)context;
	if (!stop_requested() && !process_find(pid) && chosen_includes(pid))
		discover(pid, false);
}

void processes_rescan(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		if (!proc_start_time(p->host_pid))
			tracking_end(p->host_pid);
	}
	proc_for_each(scan_one, NULL);
}

bool processes_scanned(void)
{
	return discoveries_of_start_done();
}

void processes_tick(uint64_t now_ns)
{
	if (processes_without_room() && binaries_have_room())
		discover_without_room();
	state_checks_tick(now_ns);
	grace_period_tick(now_ns);
	young_tick(now_ns, on_survived_exec);
	discoveries_tick(now_ns);
	if (discoveries_want_rescan() && now_ns >= rescan_next_ns) {
		discoveries_rescan_begins();
		rescan_next_ns = now_ns + RESCAN_NS;
		processes_rescan();
	}
}

uint64_t processes_due_in(uint64_t now_ns, uint64_t limit_ns)
{
	return discoveries_due_in(now_ns, limit_ns);
}

/* ---- start and stop ---- */

int processes_start(const struct pid_list *chosen, const struct processes_hooks *hooks,
		    struct why *why)
{
	int err;

	thread_started = hooks->thread_started;
	discoveries_start();
	tracking_start(&hooks->tracking);
	err = chosen_start(chosen, why);
	if (err)
		return err;
	discoveries_of_start(true);
	proc_for_each(scan_one, NULL);
	discoveries_of_start(false);
	return 0;
}

void processes_end(void)
{
	grace_period_end_all();
}

void processes_stop(void)
{
	discoveries_stop();
	tracking_stop();
}
