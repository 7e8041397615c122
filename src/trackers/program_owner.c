// SPDX-License-Identifier: Apache-2.0
/* The tracker of a BPF program. See trackers.h. */
#include <string.h>

#include "host/every_call.h"
#include "trackers/trackers.h"

size_t tracker_set_owner(const struct tracker_set *set, const struct bpf_object_skeleton *skeleton,
			 const struct bpf_program *program)
{
	const char *name = bpf_program__name(program);
	size_t owner = set->n;

	for (size_t i = 0; i < set->n; i++) {
		const char *prefix = set->items[i].tracker->program_prefix;

		if (set->items[i].skeleton != skeleton)
			continue;
		if (prefix && !strncmp(name, prefix, strlen(prefix)))
			return i;
		if (owner == set->n || !prefix)
			owner = i;
	}
	return owner;
}

bool tracker_runs_on_every_call(const struct running_tracker *running)
{
	struct bpf_program *program;

	if (!running->skeleton)
		return false;
	bpf_object__for_each_program (program, *running->skeleton->obj) {
		if (every_call_runs(program) &&
		    &running->set->items[tracker_set_owner(running->set, running->skeleton,
							   program)] == running)
			return true;
	}
	return false;
}
