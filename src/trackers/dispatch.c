// SPDX-License-Identifier: Apache-2.0
/* Calls to all running trackers. See trackers.h. */
#include <bpf/bpf.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "process/runtime_addresses.h"
#include "trackers/trackers.h"

void tracker_set_attach_binary(struct python_binary *binary, void *context)
{
	struct tracker_set *set = context;

	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;
		struct probe_set *probes = &binary->probes[i];

		if (!tracker_attaches(tracker) || set->items[i].dead)
			continue;
		probes->live = !tracker->python->attach(binary, &probes->links, &probes->refused);
		if (!probes->live) {
			link_list_destroy(&probes->links);
			log_warn("%s: %s: not probed: %s", tracker->name, binary->path,
				 probes->refused.text);
		} else {
			log_info("%s: %s: Python %u.%u.%u, %zu probe%s, found by %s", tracker->name,
				 binary->path, binary->image.major, binary->image.minor,
				 binary->image.micro, probes->links.n_probes,
				 plural(probes->links.n_probes), tracker->python->method(binary));
		}
	}
}

void tracker_set_leave_binary(const struct python_binary *binary, void *context)
{
	struct tracker_set *set = context;

	for (size_t i = 0; i < set->n; i++) {
		const struct tracker_python *python = set->items[i].tracker->python;

		if (python && python->leave && binary->probes[i].live)
			python->leave(binary);
	}
}

void tracker_set_process_appeared(struct tracker_set *set, const struct process *process)
{
	if (set->walks_threads)
		runtime_addresses_appeared(process->host_pid);
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker_python *python = set->items[i].tracker->python;

		if (python && python->appeared)
			python->appeared(process);
	}
}

void tracker_set_process_gone(struct tracker_set *set, uint32_t host_pid)
{
	if (set->walks_threads)
		runtime_addresses_gone(host_pid);
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker_python *python = set->items[i].tracker->python;

		if (python && python->gone && !set->items[i].dead)
			python->gone(host_pid);
	}
}

void tracker_set_tick(struct tracker_set *set, const struct tracker_output *output, uint64_t now_ns)
{
	struct tracker_output to = *output;

	if (set->walks_threads)
		runtime_addresses_tick();
	for (size_t i = 0; i < set->n; i++) {
		to.index = i;
		to.out = set->items[i].out_since_ns != 0;
		if (set->items[i].tracker->tick && !set->items[i].dead)
			set->items[i].tracker->tick(&to, now_ns);
	}
}

void tracker_set_options_changed(struct tracker_set *set)
{
	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].tracker->options_changed)
			set->items[i].tracker->options_changed();
	}
}

void tracker_set_read_stats(int stats_fd, uint64_t ret[STAT_MAX])
{
	int n_cpus = libbpf_num_possible_cpus();
	uint64_t *per_cpu = n_cpus > 0 ? calloc((size_t)n_cpus, sizeof(*per_cpu)) : NULL;

	memset(ret, 0, STAT_MAX * sizeof(*ret));
	/* STAT_SEEN, incremented first, is read last: other counters never exceed it */
	for (uint32_t stat = STAT_MAX; per_cpu && stats_fd >= 0 && stat-- > 0;) {
		if (bpf_map_lookup_elem(stats_fd, &stat, per_cpu))
			continue;
		for (int cpu = 0; cpu < n_cpus; cpu++)
			ret[stat] += per_cpu[cpu];
	}
	free(per_cpu);
}
