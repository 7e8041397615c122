// SPDX-License-Identifier: Apache-2.0
/* Processes chosen by --pid. See chosen.h. */
#include "process/chosen.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stop.h"
#include "events/process.h"
#include "host/proc.h"
#include "process/tracked_map.h"

static bool only_chosen;
static const struct process_info chosen_info = { .flags = PROCESS_CHOSEN | PROCESS_PYTHON };
static bool more_inherit;

static void track_child(uint32_t pid, void *context)
{
	uint32_t parent = proc_parent(pid);
	struct process_info info;
	int err;

	(void)context;
	if (!parent || !tracked_map_find(parent, &info))
		return;
	err = tracked_map_add(pid, &info);
	if (!err)
		more_inherit = true;
	else if (err != -EEXIST)
		log_warn("process %u is not tracked: the map of processes is full", pid);
}

/* BPF adds children of processes in the map from now on: the loop terminates. */
static void add_descendants(void)
{
	do {
		more_inherit = false;
		proc_for_each(track_child, NULL);
	} while (more_inherit && !stop_requested());
}

int chosen_start(const struct pid_list *chosen, struct why *why)
{
	static const struct process_info own_info = { .flags = PROCESS_OWN };
	uint32_t own = (uint32_t)getpid();
	int err = tracked_map_put(own, &own_info);
	size_t gone = 0;

	only_chosen = chosen->n > 0;
	if (err)
		return why_fail(why, -err, "cannot leave the agent out: %s", strerror(-err));
	for (size_t i = 0; i < chosen->n; i++) {
		err = tracked_map_put(chosen->items[i], &chosen_info);
		if (err)
			return why_fail(why, -err, "--pid: cannot track process %u: %s",
					chosen->items[i], strerror(-err));
		if (proc_start_time(chosen->items[i]))
			continue;
		/* of several, as of a unit, some may have ended since they were chosen */
		tracked_map_delete(chosen->items[i]);
		if (++gone == chosen->n)
			return proc_say_missing(chosen->items[i], why);
		log_info("--pid: there is no process %u", chosen->items[i]);
	}
	add_descendants();
	return 0;
}

bool chosen_only(void)
{
	return only_chosen;
}

bool chosen_includes(uint32_t host_pid)
{
	struct process_info info;

	return !only_chosen || (tracked_map_find(host_pid, &info) && info.flags & PROCESS_CHOSEN);
}
