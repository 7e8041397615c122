// SPDX-License-Identifier: Apache-2.0
/* What the BPF programs of each tracker have cost. See program_costs.h. */
#include "agent/program_costs.h"

#include <bpf/bpf.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

enum { UPROBE_TRAP_NS = 1500 /* 1-2 us on metal, more in virtual machines */ };

static void read_program(const struct bpf_program *program, uint64_t *ns, uint64_t *hits)
{
	struct bpf_prog_info info = { 0 };
	__u32 size = sizeof(info);
	int fd = bpf_program__fd(program);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size))
		return;
	*ns += info.run_time_ns;
	*hits += info.run_cnt;
	if (info.type == BPF_PROG_TYPE_KPROBE)
		*ns += info.run_cnt * UPROBE_TRAP_NS;
}

static void read_object(const struct tracker_set *set, const struct bpf_object_skeleton *skeleton,
			uint64_t *ns, uint64_t *hits)
{
	struct bpf_program *program;

	bpf_object__for_each_program (program, *skeleton->obj) {
		size_t owner = tracker_set_owner(set, skeleton, program);

		read_program(program, &ns[owner], &hits[owner]);
	}
}

void program_costs_read(const struct tracker_set *set, uint64_t ns[MAX_TRACKERS + 1],
			uint64_t hits[MAX_TRACKERS + 1])
{
	memset(ns, 0, (MAX_TRACKERS + 1) * sizeof(*ns));
	memset(hits, 0, (MAX_TRACKERS + 1) * sizeof(*hits));
	for (size_t i = 0; i < set->n; i++) {
		const struct bpf_object_skeleton *skeleton = set->items[i].skeleton;
		bool seen = !skeleton || set->items[i].dead;

		for (size_t k = 0; k < i; k++)
			seen |= set->items[k].skeleton == skeleton;
		if (!seen)
			read_object(set, skeleton, ns, hits);
	}
	read_object(set, set->process_skeleton, ns, hits);
}

bool program_costs_kept(void)
{
	AUTO_FCLOSE FILE *f = fopen("/proc/sys/kernel/bpf_stats_enabled", "re");

	return f && fgetc(f) == '1';
}
