// SPDX-License-Identifier: Apache-2.0
/* The life of a Python process in the agent. See tracking.h. */
#include "process/tracking.h"

#include "base/clock.h"
#include "base/log.h"
#include "events/process.h"
#include "host/proc.h"
#include "process/chosen.h"
#include "process/grace_period.h"
#include "process/process_table.h"
#include "process/service_name.h"
#include "process/state_check.h"
#include "process/tracked_map.h"

static struct tracking_hooks hooks;

/* Publishes the process's flags to BPF, by tracked_map_put() or tracked_map_change(). */
static int publish_flags(uint32_t host_pid, uint32_t flags,
			 int (*publish)(uint32_t host_pid, const struct process_info *info))
{
	struct process_info info = { .flags = flags };

	if (chosen_only())
		info.flags |= PROCESS_CHOSEN | PROCESS_PYTHON;
	return publish(host_pid, &info);
}

static void announce(struct process *p, uint64_t start_time)
{
	if (hooks.appeared)
		hooks.appeared(p);
	service_name_read(p, clock_monotonic_ns());
	grace_period_begin(p, start_time);
}

/* A refused Python is tracked in BPF without reading its memory. */
static uint32_t flags_of(const struct binary_file *file)
{
	if (file->unanswered)
		return PROCESS_REFUSED;
	return file->binary ? PROCESS_PYTHON : PROCESS_PYTHON | PROCESS_REFUSED;
}

void tracking_add(uint32_t host_pid, const struct binary_file *file, const struct why *why,
		  uint64_t start_time)
{
	struct process *p;

	if (publish_flags(host_pid, flags_of(file), tracked_map_put)) {
		log_warn("process %u is not tracked: the map of processes is full", host_pid);
		return;
	}
	/* if the process ended before the insertion, no exit event will remove the entry */
	if (proc_start_time(host_pid) != start_time) {
		tracked_map_delete(host_pid);
		return;
	}
	p = process_add(host_pid, file, why);
	if (!p)
		return;
	announce(p, start_time);
	if (file->binary)
		state_check_soon(p, start_time);
}

void tracking_end(uint32_t host_pid)
{
	struct process *p = process_find(host_pid);

	if (hooks.gone)
		hooks.gone(host_pid);
	if (p)
		process_end(p);
}

void tracking_remove(uint32_t host_pid)
{
	if (!chosen_only())
		tracked_map_delete(host_pid);
	tracking_end(host_pid);
}

/* The state check failed: refuses the process. */
static void refuse(struct process *p)
{
	uint32_t host_pid = p->host_pid;

	log_warn("process %u in %s: %s", host_pid, p->file.binary->path, p->unread.text);
	publish_flags(host_pid, PROCESS_PYTHON | PROCESS_REFUSED,
		      tracked_map_change); /* the process may have ended */
	if (hooks.gone)
		hooks.gone(host_pid); /* the process stays in the table, as refused */
	process_drop_binary(p);
	p->refused = p->unread;
	announce(p, 0);
}

void tracking_fork(uint32_t host_pid, const struct process *parent)
{
	struct process *p = process_add(host_pid, &parent->file, &parent->refused);

	if (!p)
		return;
	announce(p, 0);
	if (p->file.binary)
		state_check_soon(p, 0);
}

void tracking_start(const struct tracking_hooks *with)
{
	hooks = *with;
	grace_period_init(&(struct grace_period_hooks){ with->reportable, with->checked });
	state_checks_init(&(struct state_check_hooks){ grace_period_checked, refuse });
}

void tracking_stop(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	process_end(p);
	state_checks_stop();
	grace_period_stop();
}
