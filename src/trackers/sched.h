/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF object that gil_wait and off_cpu share (bpf/sched.bpf.c), and the sums that each has of
 * it: two maps, of which one fills while the other is emptied.
 */
#ifndef UNDERSPAN_SCHED_H
#define UNDERSPAN_SCHED_H

#include "sched.skel.h"
#include "trackers/tracker.h"

/*
 * Opened by the first who asks, with both trackers off, then only counted. -EBUSY: it was loaded
 * for the other tracker alone, because the kernel refused it with both.
 */
int sched_open(struct sched_bpf **ret_skeleton, struct why *why);
void sched_close(void);

/* Before loading: whoever opened it wants its programs on context switches, which cost the most. */
void sched_watch_switches(void);

/* The sums of one tracker; the first members are set by it. */
struct sched_sums {
	struct bpf_map *maps[2];
	volatile uint32_t *side; /* which one the probes fill */
	uint64_t interval_ns;
	/* Sees every entry of the interval start_ns..end_ns once. */
	void (*each)(const struct tracker_output *output, const struct sched_sums *sums,
		     const void *key, const void *value);
	/* May be NULL: sees that a side is drained, for what the tracker has beside the maps. */
	void (*drained)(const struct tracker_output *output, const struct sched_sums *sums,
			uint32_t side);

	uint64_t since_ns; /* the probes have been filling their map since */
	uint64_t start_ns, end_ns;
	bool pending; /* the other map is full of that interval */
};
void sched_sums_tick(struct sched_sums *sums, const struct tracker_output *output, uint64_t now_ns);

#endif
