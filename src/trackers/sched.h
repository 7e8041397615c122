/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF object shared by gil_wait, off_cpu and request (bpf/sched.bpf.c), and the sums of each
 * tracker: double-buffered maps.
 */
#ifndef UNDERSPAN_TRACKERS_SCHED_H
#define UNDERSPAN_TRACKERS_SCHED_H

#include "sched.skel.h"
#include "trackers/tracker.h"

/*
 * The first call opens the object with all trackers off; later calls take a reference. -EBUSY:
 * loaded without the caller's tracker, since the kernel refused all together.
 */
int sched_open(struct sched_bpf **ret_skeleton, struct why *why);
void sched_close(void);

/*
 * The governor takes a tracker of the object out, or puts the tracker back; `out`: the tracker's
 * flag of the kernel side. When all are out, the records of all threads become invalid.
 */
void sched_take_out(bool *out);
void sched_put_back(bool *out);

/* gc_pause, whose collections are parts of requests, is taken out or put back. */
void sched_gc_pause_out(bool out);

/* To be called before loading: enables the programs on context switches, the most expensive. */
void sched_watch_switches(void);

/* Runs an iterator's program once for each thread of the host. 0, or -errno. */
int sched_run_on_threads(const struct bpf_program *program);

enum { SCHED_KEY_MAX = 64 };

/* Sums of a tracker, which sets the first members. */
struct sched_sums {
	struct bpf_map *maps[2];
	volatile uint32_t *side; /* index of the active map */
	uint64_t interval_ns;
	/* Called once per entry of the interval start_ns..end_ns. */
	void (*each)(const struct tracker_output *output, const struct sched_sums *sums,
		     const void *key, const void *value);
	/*
	 * May be NULL: called every second for entries of the active map. True: the kernel side
	 * adds nothing more; the entry is handed over now.
	 */
	bool (*is_complete)(const struct bpf_map *map, const void *key, uint64_t now_ns);
	/* May be NULL: called after draining a map, for further state of the tracker. */
	void (*drained)(const struct tracker_output *output, const struct sched_sums *sums,
			uint32_t side);

	uint64_t since_ns; /* start of the active map's interval */
	uint64_t start_ns, end_ns;
	bool pending; /* the inactive map holds the previous interval */
	bool has_looked;
	char looked[SCHED_KEY_MAX]; /* last key of the active map that `is_complete` was asked of */
};
void sched_sums_tick(struct sched_sums *sums, const struct tracker_output *output, uint64_t now_ns);

#endif
