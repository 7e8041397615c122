// SPDX-License-Identifier: Apache-2.0
/* The registry of trackers, and loading, attaching and closing them. See trackers.h. */
#include "trackers/trackers.h"

#include <bpf/bpf.h>
#include <string.h>

#include "events/process.h"
#include "log.h"
#include "probe/processes.h"
#include "process.skel.h"

extern const struct tracker handoff_tracker, gc_pause_tracker;

/* A new tracker: its line here. */
const struct tracker *const all_trackers[] = {
	&handoff_tracker,
	&gc_pause_tracker,
	NULL,
};

enum { PROCESS_RING_BYTES = 1 << 20 };

static struct process_bpf *process_skeleton;

const char *trackers_names(char *buf, size_t size)
{
	buf[0] = 0;
	for (size_t i = 0; all_trackers[i]; i++)
		snprintf(buf + strlen(buf), size - strlen(buf), "%s%s", i ? ", " : "",
			 all_trackers[i]->name);
	return buf;
}

static bool is_wanted(const struct string_list *names, const struct tracker *tracker)
{
	for (size_t i = 0; i < names->n; i++) {
		if (!strcmp(names->items[i], tracker->name))
			return true;
	}
	return names->n == 0;
}

static int check_names(const struct string_list *names, struct why *why)
{
	char all[256];

	for (size_t i = 0; i < names->n; i++) {
		bool known = false;

		for (size_t k = 0; all_trackers[k]; k++)
			known = known || !strcmp(all_trackers[k]->name, names->items[i]);
		if (!known)
			return why_fail(why, EINVAL,
					"trackers: there is no tracker '%s'; there are %s",
					names->items[i], trackers_names(all, sizeof(all)));
	}
	return 0;
}

/* ---- ring buffers ---- */

static int on_process_event(void *context, void *data, size_t size)
{
	(void)context;
	if (size == sizeof(struct process_event))
		processes_handle(data);
	return 0;
}

static int on_tracker_event(void *context, void *data, size_t size)
{
	struct running_tracker *running = context;

	const struct tracker *tracker = running->tracker;

	/* the ring buffer rounds nothing up: another size is another build's record */
	if (size < tracker->event_size || size - tracker->event_size > tracker->extra_max)
		running->bad_events++;
	else
		running->set->on_event((size_t)(running - running->set->items), data, size,
				       running->set->context);
	return 0;
}

static int add_ring(struct tracker_set *set, int fd, ring_buffer_sample_fn fn, void *context)
{
	if (set->rings)
		return ring_buffer__add(set->rings, fd, fn, context);
	set->rings = ring_buffer__new(fd, fn, context, NULL);
	return set->rings ? 0 : -errno;
}

/* ---- opening ---- */

static int open_process_object(struct tracker_set *set, struct why *why)
{
	int err;

	process_skeleton = process_bpf__open();
	if (!process_skeleton)
		return why_fail(why, errno, "cannot open the process object: %s", strerror(errno));
	set->process_skeleton = process_skeleton->skeleton;
	bpf_map__set_max_entries(process_skeleton->maps.events, PROCESS_RING_BYTES);
	err = bpf_object__load_skeleton(set->process_skeleton);
	if (err)
		return why_fail(why, ENODEV, "the kernel refused the process object: %s",
				strerror(-err));
	set->processes_fd = bpf_map__fd(process_skeleton->maps.processes);
	err = add_ring(set, bpf_map__fd(process_skeleton->maps.events), on_process_event, NULL);
	if (err)
		return why_fail(why, -err, "cannot read the process object's ring buffer: %s",
				strerror(-err));
	return 0;
}

/* On failure the caller closes the tracker. */
static int open_tracker(struct tracker_set *set, struct running_tracker *running, struct why *why)
{
	const struct tracker *tracker = running->tracker;
	struct bpf_map *map;
	int err = tracker->open(set->only_chosen, &running->skeleton, why);

	if (err)
		return err;
	bpf_object__for_each_map (map, *running->skeleton->obj) {
		if (!strcmp(bpf_map__name(map), "events"))
			err = bpf_map__set_max_entries(map, (uint32_t)tracker->ring_bytes);
		else if (!strcmp(bpf_map__name(map), "processes"))
			err = bpf_map__reuse_fd(map, set->processes_fd);
		if (err)
			return why_fail(why, -err, "cannot set up map %s: %s", bpf_map__name(map),
					strerror(-err));
	}
	err = bpf_object__load_skeleton(running->skeleton);
	if (err)
		return why_fail(why, -err,
				"the kernel refused its BPF programs: %s (--log_level=debug shows "
				"the verifier's words)",
				strerror(-err));
	running->stats_fd = bpf_object__find_map_fd_by_name(*running->skeleton->obj, "stats");
	err = add_ring(set, bpf_object__find_map_fd_by_name(*running->skeleton->obj, "events"),
		       on_tracker_event, running);
	return err ? why_fail(why, -err, "cannot read its ring buffer: %s", strerror(-err)) : 0;
}

static void refuse(struct tracker_set *set, const struct tracker *tracker, const struct why *why)
{
	set->refused[set->n_refused++] = (struct refused_tracker){ tracker, *why };
	log_error("%s: does not run: %s; the other trackers go on", tracker->name, why->text);
}

int tracker_set_open(struct tracker_set *set, const struct string_list *names, bool only_chosen,
		     tracker_on_event on_event, void *context, struct why *why)
{
	int err = check_names(names, why);

	*set = (struct tracker_set){ .only_chosen = only_chosen,
				     .on_event = on_event,
				     .context = context,
				     .processes_fd = -1 };
	if (!err)
		err = open_process_object(set, why);
	if (err)
		return err;
	for (size_t i = 0; all_trackers[i]; i++) {
		struct running_tracker *running = &set->items[set->n];

		if (!is_wanted(names, all_trackers[i]))
			continue;
		*running = (struct running_tracker){ .tracker = all_trackers[i], .set = set };
		err = open_tracker(set, running, why);
		if (!err) {
			set->n++;
			continue;
		}
		refuse(set, all_trackers[i], why);
		all_trackers[i]->close();
	}
	return set->n ? 0 : why_fail(why, ENODEV, "no tracker can run on this host");
}

static bool all_dead(const struct tracker_set *set)
{
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			return false;
	}
	return true;
}

int tracker_set_attach(struct tracker_set *set, struct why *why)
{
	int err = bpf_object__attach_skeleton(set->process_skeleton);

	if (err)
		return why_fail(why, -err, "cannot attach to process events: %s", strerror(-err));
	for (size_t i = 0; i < set->n; i++) {
		struct running_tracker *running = &set->items[i];

		if (!running->skeleton)
			continue;
		err = bpf_object__attach_skeleton(running->skeleton);
		if (!err)
			continue;
		why_fail(why, -err, "the kernel refused to attach it: %s", strerror(-err));
		bpf_object__detach_skeleton(running->skeleton);
		running->dead = true;
		refuse(set, running->tracker, why);
		if (all_dead(set))
			return why_fail(why, ENODEV, "no tracker can be attached on this host");
	}
	return 0;
}

void tracker_set_attach_binary(struct python_binary *binary, void *context)
{
	struct tracker_set *set = context;

	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;
		int err;

		if (!tracker->attach_binary || set->items[i].dead)
			continue;
		err = tracker->attach_binary(binary, &binary->links[i], &binary->refused[i]);
		binary->live[i] = err == 0;
		if (err) {
			link_list_destroy(&binary->links[i]);
			log_warn("%s: %s: not probed: %s", tracker->name, binary->path,
				 binary->refused[i].text);
		} else {
			log_info("%s: %s: Python %u.%u.%u, %zu probes, found by %s", tracker->name,
				 binary->path, binary->image.major, binary->image.minor,
				 binary->image.micro, binary->links[i].n,
				 tracker->binary_method(binary));
		}
	}
}

void tracker_set_process_gone(struct tracker_set *set, uint32_t host_pid)
{
	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].tracker->process_gone && !set->items[i].dead)
			set->items[i].tracker->process_gone(host_pid);
	}
}

void tracker_set_tick(struct tracker_set *set, const struct tracker_output *output, uint64_t now_ns)
{
	struct tracker_output to = *output;

	for (size_t i = 0; i < set->n; i++) {
		to.index = i;
		if (set->items[i].tracker->tick && !set->items[i].dead)
			set->items[i].tracker->tick(&to, now_ns);
	}
}

void tracker_set_read_stats(struct tracker_set *set, size_t index, uint64_t ret[STAT_MAX])
{
	int n_cpus = libbpf_num_possible_cpus();
	uint64_t *per_cpu = n_cpus > 0 ? calloc((size_t)n_cpus, sizeof(*per_cpu)) : NULL;

	memset(ret, 0, STAT_MAX * sizeof(*ret));
	for (uint32_t stat = 0; per_cpu && set->items[index].skeleton && stat < STAT_MAX; stat++) {
		if (bpf_map_lookup_elem(set->items[index].stats_fd, &stat, per_cpu))
			continue;
		for (int cpu = 0; cpu < n_cpus; cpu++)
			ret[stat] += per_cpu[cpu];
	}
	free(per_cpu);
}

/* ---- closing ---- */

void tracker_set_detach(struct tracker_set *set)
{
	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].skeleton)
			bpf_object__detach_skeleton(set->items[i].skeleton);
	}
	if (set->process_skeleton)
		bpf_object__detach_skeleton(set->process_skeleton);
}

void tracker_set_close(struct tracker_set *set)
{
	ring_buffer__free(set->rings);
	set->rings = NULL;
	for (size_t i = 0; i < set->n; i++)
		set->items[i].tracker->close();
	set->n = 0;
	process_bpf__destroy(process_skeleton);
	process_skeleton = NULL;
	set->process_skeleton = NULL;
}
