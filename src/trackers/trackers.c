// SPDX-License-Identifier: Apache-2.0
/* The registry of trackers: load, attach, close. See trackers.h. */
#include "trackers/trackers.h"

#include <bpf/bpf.h>
#include <string.h>

#include "events/process.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/clock.h"
#include "host/kernel.h"
#include "host/tracefs.h"
#include "process/processes.h"
#include "process/tracked_map.h"
#include "process/young.h"
#include "process.skel.h"
#include "base/stop.h"
#include "trackers/load_together.h"
#include "trackers/map_memory.h"
#include "process/runtime_addresses.h"
#include "trackers/all.h"

#define X(name) extern const struct tracker name##_tracker;
ALL_TRACKERS(X)
#undef X

const struct tracker *const all_trackers[] = {
#define X(name) &name##_tracker,
	ALL_TRACKERS(X)
#undef X
		NULL,
};
_Static_assert(ARRAY_SIZE(all_trackers) <= MAX_TRACKERS + 1, "more trackers than MAX_TRACKERS");

enum { PROCESS_RING_BYTES = 256 << 10 };

static struct process_bpf *process_skeleton;

static const char *trackers_names(char *buf, size_t size)
{
	buf[0] = 0;
	for (size_t i = 0; all_trackers[i]; i++)
		snprintf(buf + strlen(buf), size - strlen(buf), "%s%s", i ? ", " : "",
			 all_trackers[i]->name);
	return buf;
}

int trackers_check_name(const char *key, const char *name, struct why *why)
{
	struct nearest nearest;
	char names[256], all[320], hint[320];

	nearest_begin(&nearest, name, strlen(name));
	for (size_t i = 0; all_trackers[i]; i++) {
		if (!strcmp(all_trackers[i]->name, name))
			return 0;
		nearest_try(&nearest, all_trackers[i]->name);
	}
	if (strpbrk(name, " ;+"))
		return why_fail(why, EINVAL,
				"%s: '%.64s': put a comma between names, as in "
				"gc_pause,off_cpu",
				key, name);
	snprintf(all, sizeof(all), "; %sthere are %s",
		 !strcmp(name, "all") ? "leave the option out for all: " : "",
		 trackers_names(names, sizeof(names)));
	return why_fail(why, EINVAL, "%s: there is no tracker '%.64s'%s", key, name,
			nearest_hint(&nearest, "", all, hint, sizeof(hint)));
}

unsigned int tracker_shed_rank(const struct tracker *tracker, const struct string_list *first)
{
	for (size_t i = 0; i < first->n; i++) {
		if (!strcmp(first->items[i], tracker->name))
			return (unsigned int)(first->n - i);
	}
	return first->n ? 0 : tracker->shed_rank;
}

bool tracker_is_wanted(const struct string_list *names, const struct tracker *tracker)
{
	for (size_t i = 0; i < names->n; i++) {
		if (!strcmp(names->items[i], tracker->name))
			return true;
	}
	return names->n == 0;
}

static int check_names(const struct string_list *names, struct why *why)
{
	int err = 0;

	for (size_t i = 0; i < names->n && !err; i++)
		err = trackers_check_name("trackers", names->items[i], why);
	return err;
}

static int check_options(const struct string_list *names, struct why *why)
{
	int err = 0;

	for (size_t i = 0; !err && all_trackers[i]; i++) {
		if (all_trackers[i]->check_options && tracker_is_wanted(names, all_trackers[i]))
			err = all_trackers[i]->check_options(why);
	}
	return err;
}

int trackers_check(const struct string_list *names, struct why *why)
{
	int err = check_names(names, why);

	return err ? err : check_options(names, why);
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
	if (!set->walks_threads)
		bpf_map__set_max_entries(process_skeleton->maps.python_processes, 1);
	/* without an entry a process lacks stacks; not so of `processes`, which has to have room */
	if (kernel_has("bpf_mem_alloc")) {
		bpf_map__set_map_flags(process_skeleton->maps.python_processes, BPF_F_NO_PREALLOC);
		bpf_map__set_map_flags(process_skeleton->maps.young, BPF_F_NO_PREALLOC);
		bpf_map__set_map_flags(process_skeleton->maps.gc_clocks, BPF_F_NO_PREALLOC);
	}
	process_skeleton->rodata->only_chosen = set->only_chosen;
	err = bpf_object__load_skeleton(set->process_skeleton);
	if (err)
		return why_fail(why, ENODEV, "the kernel refused the process object: %s%s",
				strerror(-err),
				err == -EMFILE ? ": raise the limit of open files (`ulimit -n`, "
						 "LimitNOFILE of the unit)"
					       : "");
	err = tracked_map_start(bpf_map__fd(process_skeleton->maps.processes),
				bpf_map__fd(process_skeleton->maps.process_slots), why);
	if (err)
		return err;
	set->process_stats_fd = bpf_map__fd(process_skeleton->maps.stats);
	young_start(bpf_map__fd(process_skeleton->maps.young),
		    &process_skeleton->bss->young_programs);
	runtime_addresses_start(bpf_map__fd(process_skeleton->maps.python_processes),
				bpf_map__fd(process_skeleton->maps.python_binaries));
	err = rings_add_process(set, bpf_map__fd(process_skeleton->maps.events));
	if (err)
		return why_fail(why, -err, "cannot read the process object's ring buffer: %s",
				strerror(-err));
	return 0;
}

/* A tracker's own map `what`, prefixed by the tracker's name in a shared object. */
static struct bpf_map *own_map(const struct running_tracker *running, const char *what)
{
	struct bpf_object *object = *running->skeleton->obj;
	struct bpf_map *map;
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", running->tracker->name, what);
	map = bpf_object__find_map_by_name(object, name);
	return map ? map : bpf_object__find_map_by_name(object, what);
}

/* The first running tracker with this object, on behalf of all trackers with the object. */
static bool is_first(const struct tracker_set *set, const struct running_tracker *running)
{
	for (const struct running_tracker *r = set->items; r < running; r++) {
		if (r->skeleton == running->skeleton)
			return false;
	}
	return running->skeleton != NULL;
}

/* The kernel wants a power of two. */
static uint32_t ring_bytes(const struct tracker *tracker)
{
	uint64_t wanted = tracker->ring_kib ? *tracker->ring_kib << 10 : tracker->ring_bytes;
	uint32_t bytes = 4096;

	while (bytes < wanted && bytes < 1U << 30)
		bytes *= 2;
	return bytes;
}

/* Shares the process object's maps with a tracker's object, by name. */
static int share_maps(struct bpf_object *object)
{
	const struct bpf_map *const shared[] = {
		process_skeleton->maps.processes,	process_skeleton->maps.process_slots,
		process_skeleton->maps.accepted_ports,	process_skeleton->maps.python_processes,
		process_skeleton->maps.python_binaries, process_skeleton->maps.gc_clocks,
		process_skeleton->maps.gc_own,		process_skeleton->maps.gc_running
	};
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(shared); i++) {
		struct bpf_map *map = bpf_object__find_map_by_name(object,
								   bpf_map__name(shared[i]));

		if (map)
			err = bpf_map__reuse_fd(map, bpf_map__fd(shared[i]));
	}
	return err;
}

static int open_tracker(const struct tracker_set *set, struct running_tracker *running,
			struct why *why)
{
	int err = running->tracker->open(set->only_chosen, &running->skeleton, why);

	if (err || !running->skeleton)
		return err;
	map_memory_on_demand(*running->skeleton->obj);
	err = bpf_map__set_max_entries(own_map(running, "events"), ring_bytes(running->tracker));
	if (!err)
		err = share_maps(*running->skeleton->obj);
	return err ? why_fail(why, -err, "cannot set up the tracker's maps: %s", strerror(-err))
		   : 0;
}

static int check_loaded(int err, struct why *why)
{
	return err ? why_fail(why, -err,
			      "the kernel refused its BPF programs: %s (--log_level=debug shows "
			      "the verifier's log)",
			      strerror(-err))
		   : 0;
}

static void refuse_tracker(struct tracker_set *set, const struct tracker *tracker,
			   const struct why *why)
{
	set->refused[set->n_refused++] = (struct refused_tracker){ tracker, *why };
	log_error("%s: does not run: %s; all other trackers go on", tracker->name, why->text);
}

static void give_up(struct tracker_set *set, struct running_tracker *running, const struct why *why)
{
	refuse_tracker(set, running->tracker, why);
	running->tracker->close();
	running->skeleton = NULL;
	running->failed = true;
}

/* Opens and loads the object for the members of `mask`; closed again on error. */
static int load_members(struct tracker_set *set, struct running_tracker **sharing, uint32_t mask,
			struct why *why)
{
	struct running_tracker *member = NULL;
	int err = 0;

	for (size_t i = 0; mask >> i && !err; i++) {
		if (!(mask >> i & 1))
			continue;
		member = sharing[i];
		err = open_tracker(set, member, why);
	}
	if (!err) {
		map_memory_shrink(*member->skeleton->obj, set->map_most);
		err = check_loaded(bpf_object__load_skeleton(member->skeleton), why);
	}
	for (size_t i = 0; mask >> i && err; i++)
		sharing[i]->tracker->close();
	return err;
}

/*
 * The kernel refused an object shared by several trackers. A single tracker may be the reason:
 * finds the largest set of trackers that loads, preferring older trackers.
 */
static void load_most_of(struct tracker_set *set, struct running_tracker *first,
			 const struct why *reason)
{
	struct bpf_object_skeleton *shared = first->skeleton;
	struct running_tracker *sharing[MAX_TRACKERS];
	uint32_t n = 0, loaded = 0;
	struct why why;

	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].failed && set->items[i].skeleton == shared)
			sharing[n++] = &set->items[i];
	}
	for (size_t i = 0; i < n; i++)
		sharing[i]->tracker->close();
	for (uint32_t size = n - 1; size && !loaded; size--) {
		for (uint32_t mask = 1; mask < 1U << n && !loaded; mask++) {
			if (__builtin_popcount(mask) == (int)size &&
			    load_members(set, sharing, mask, &why) == 0)
				loaded = mask;
		}
	}
	for (size_t i = 0; i < n; i++) {
		if (!(loaded >> i & 1))
			give_up(set, sharing[i], reason);
	}
}

static void fit_maps(struct tracker_set *set, uint64_t bytes)
{
	struct bpf_object *objects[MAX_TRACKERS];
	size_t n = 0;

	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].failed && is_first(set, &set->items[i]))
			objects[n++] = *set->items[i].skeleton->obj;
	}
	set->map_most = map_memory_fit(objects, n, bytes);
}

static void load_objects(struct tracker_set *set)
{
	struct object_load loads[MAX_TRACKERS];
	struct why why;
	size_t n = 0;

	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].failed && is_first(set, &set->items[i]))
			loads[n++] = (struct object_load){ .skeleton = set->items[i].skeleton,
							   .first = &set->items[i] };
	}
	load_together(loads, n);
	for (size_t i = 0; i < n; i++) {
		if (check_loaded(loads[i].err, &why))
			load_most_of(set, loads[i].first, &why);
	}
}

static int watch_rings(struct tracker_set *set, struct why *why)
{
	for (size_t i = 0; i < set->n; i++) {
		struct running_tracker *running = &set->items[i];
		int err;

		if (!running->skeleton)
			continue;
		running->stats_fd = bpf_map__fd(own_map(running, "stats"));
		running->sampling_fd = bpf_map__fd(own_map(running, "sampling"));
		err = rings_add_tracker(running, bpf_map__fd(own_map(running, "events")));
		if (err)
			return why_fail(why, -err, "%s: cannot read the ring buffer: %s",
					running->tracker->name, strerror(-err));
	}
	return 0;
}

/* Before watch_rings(): a ring buffer is given the tracker's place in the list. */
static void drop_failed(struct tracker_set *set)
{
	size_t kept = 0;

	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].failed)
			set->items[kept++] = set->items[i];
	}
	set->n = kept;
}

int tracker_set_open(struct tracker_set *set, const struct string_list *names, bool only_chosen,
		     uint64_t map_bytes, tracker_on_event on_event, void *context, struct why *why)
{
	int err = trackers_check(names, why);

	*set = (struct tracker_set){ .only_chosen = only_chosen,
				     .on_event = on_event,
				     .on_event_context = context,
				     .process_stats_fd = -1 };
	for (size_t i = 0; all_trackers[i]; i++)
		set->walks_threads |= tracker_walks_threads(all_trackers[i]) &&
				      tracker_is_wanted(names, all_trackers[i]);
	if (!err)
		err = open_process_object(set, why);
	if (err)
		return err;
	for (size_t i = 0; all_trackers[i]; i++) {
		struct running_tracker *running = &set->items[set->n];

		if (!tracker_is_wanted(names, all_trackers[i]))
			continue;
		*running = (struct running_tracker){
			.tracker = all_trackers[i], .stats_fd = -1, .sampling_fd = -1, .set = set
		};
		set->n++;
		err = open_tracker(set, running, why);
		if (err)
			give_up(set, running, why);
	}
	kernel_forget_types();
	fit_maps(set, map_bytes);
	load_objects(set);
	drop_failed(set);
	return set->n ? watch_rings(set, why)
		      : why_fail(why, ENODEV, "no tracker can run on this host");
}

/* All trackers of the object. */
static void destroy_object(struct tracker_set *set, const struct bpf_object_skeleton *skeleton,
			   const struct why *why)
{
	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].skeleton != skeleton)
			continue;
		set->items[i].dead = true;
		refuse_tracker(set, set->items[i].tracker, why);
	}
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

		if (stop_requested())
			return 0;
		if (!is_first(set, running))
			continue;
		err = tracefs_attach(running->skeleton, why);
		if (!err) {
			err = bpf_object__attach_skeleton(running->skeleton);
			if (!err)
				continue;
			why_fail(why, -err, "the kernel refused to attach the tracker: %s",
				 strerror(-err));
		}
		bpf_object__detach_skeleton(running->skeleton);
		destroy_object(set, running->skeleton, why);
		if (all_dead(set))
			return why_fail(why, ENODEV, "no tracker can be attached on this host");
	}
	return 0;
}

/* ---- closing ---- */

bool tracker_set_detach(struct tracker_set *set, uint64_t ns)
{
	struct link_list links = { 0 };

	for (size_t i = 0; i < set->n; i++) {
		const struct tracker_python *python = set->items[i].tracker->python;

		if (python && python->quiet && !set->items[i].dead)
			python->quiet();
	}
	for (size_t i = 0; i < set->n; i++) {
		const struct tracker *tracker = set->items[i].tracker;

		if (set->items[i].skeleton)
			link_list_take(&links, set->items[i].skeleton);
		if (tracker->give_links)
			tracker->give_links(&links);
	}
	if (set->process_skeleton)
		link_list_take(&links, set->process_skeleton);
	return link_list_destroy_within(&links, ns);
}

void tracker_set_close(struct tracker_set *set)
{
	while (set->n_rings)
		ring_close(&set->rings[--set->n_rings].ring);
	for (size_t i = 0; i < set->n; i++)
		set->items[i].tracker->close();
	set->n = 0;
	tracked_map_stop();
	process_bpf__destroy(process_skeleton);
	process_skeleton = NULL;
	set->process_skeleton = NULL;
}
