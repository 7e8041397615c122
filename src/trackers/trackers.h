/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running trackers. Each is opened, loaded and attached separately: a tracker that cannot run
 * reports the reason and leaves the rest running. Also: probes in Python binaries, counters.
 */
#ifndef UNDERSPAN_TRACKERS_TRACKERS_H
#define UNDERSPAN_TRACKERS_TRACKERS_H

#include "events/event.h"
#include "trackers/ring.h"
#include "trackers/tracker.h"

struct tracker_set;

struct running_tracker {
	const struct tracker *tracker;
	struct bpf_object_skeleton *skeleton;
	int stats_fd, sampling_fd; /* maps; -1: it has no BPF object */
	size_t tables[2];	   /* the pipeline's handles: .table, .second_table */
	uint64_t bad_events;	   /* records of a wrong size */
	uint64_t of_refused;	   /* events of refused processes */
	uint64_t rows;		   /* of both tables */
	uint64_t event_rows;	   /* of both tables, made of events */
	uint64_t own_rows;	   /* of the first table, made without an event */
	uint64_t out_since_ns;	   /* taken out by the governor, see take_out.h; 0: it measures */
	uint64_t dropped_open;	   /* open intervals dropped when it was put back */
	bool dead;		   /* could not be attached: listed in `refused` */
	struct tracker_set *set;
	bool failed; /* while the set is opened */
};

/* Called with each complete record of a tracker's ring buffer (size checked). */
typedef void (*tracker_on_event)(void *context, struct running_tracker *running, const void *event,
				 size_t size);

/* A requested tracker that cannot run. */
struct refused_tracker {
	const struct tracker *tracker;
	struct why why;
};

/* A ring buffer, and who takes its records. */
struct tracker_ring {
	struct ring ring;
	ring_on_record on_record;
	void *context;
};

struct tracker_set {
	struct running_tracker items[MAX_TRACKERS];
	size_t n;
	struct refused_tracker refused[MAX_TRACKERS];
	size_t n_refused;
	/* a reader per ring buffer: in a storm a buffer is never empty, and must not delay
	 * the rest */
	struct tracker_ring rings[MAX_TRACKERS + 1]; /* the first: events of processes */
	size_t n_rings;
	struct bpf_object_skeleton *process_skeleton; /* bpf/process.bpf.c */
	int process_stats_fd;
	bool walks_threads;	 /* a tracker walks Python stacks of threads */
	uint64_t map_most;	 /* maximal bytes of a BPF map, see map_memory.h */
	uint64_t process_events; /* records of the process object's ring buffer */
	uint64_t process_cpu_ns; /* CPU time for these records, of the collector */
	bool only_chosen;
	tracker_on_event on_event;
	void *on_event_context;
};

/*
 * Loads the process object, then the named trackers (`names` empty: all). A tracker that fails is
 * logged and left out. Full maps take at most `map_bytes`. Errors: wrong name or option (-EINVAL);
 * the process object cannot run, or no tracker can.
 */
int tracker_set_open(struct tracker_set *set, const struct string_list *names, bool only_chosen,
		     uint64_t map_bytes, tracker_on_event on_event, void *context, struct why *why);

/*
 * Attaches the programs that need no binary; events arrive from here on. A tracker that cannot be
 * attached is logged and moved to `refused`. Errors: the process object, or all trackers, failed.
 */
int tracker_set_attach(struct tracker_set *set, struct why *why);

/* Hooks of process/binaries.h; `set` is a tracker_set. */
void tracker_set_attach_binary(struct python_binary *binary, void *set);
void tracker_set_leave_binary(const struct python_binary *binary, void *set);

void tracker_set_process_appeared(struct tracker_set *set, const struct process *process);
void tracker_set_process_gone(struct tracker_set *set, uint32_t host_pid);

void tracker_set_tick(struct tracker_set *set, const struct tracker_output *output,
		      uint64_t now_ns);

/* Options have changed: calls the trackers' hooks. */
void tracker_set_options_changed(struct tracker_set *set);

/* Sums the per-CPU counters of a map `stats`; -1 (no map): all 0. */
void tracker_set_read_stats(int stats_fd, uint64_t ret[STAT_MAX]);

/* The ring buffers of the process object and of a tracker; `fd`: the map. 0, or -errno. */
int rings_add_process(struct tracker_set *set, int fd);
int rings_add_tracker(struct running_tracker *running, int fd);

/*
 * Passes on the records of the ring buffers, a few hundred from each in turn, until all buffers
 * are empty or until the time (CLOCK_MONOTONIC).
 */
void tracker_set_consume(struct tracker_set *set, uint64_t until_ns);

/*
 * A record of the tracker's ring buffer: passed on, or counted in bad_events if no event of the
 * tracker has this size.
 */
void running_tracker_take(struct running_tracker *running, const void *record, size_t size);

/*
 * Index of the tracker of a program. In a shared object: by the program's prefix; without a match,
 * the object's last tracker. set->n: no tracker has this object.
 */
size_t tracker_set_owner(const struct tracker_set *set, const struct bpf_object_skeleton *skeleton,
			 const struct bpf_program *program);

/* Whether a program of the tracker runs on every system call of the host (host/every_call.h). */
bool tracker_runs_on_every_call(const struct running_tracker *running);

/*
 * Stops the producers, for at most so long; records stay in the ring buffers. False: the kernel
 * holds up the removal of probes, which go on. Then tracker_set_close(), unless false.
 */
bool tracker_set_detach(struct tracker_set *set, uint64_t ns);
void tracker_set_close(struct tracker_set *set);

/* Rank of the tracker's rows, see pipeline_set_shed_rank(). `first`: the option; empty: default. */
unsigned int tracker_shed_rank(const struct tracker *tracker, const struct string_list *first);

/* -EINVAL with `why` (beginning with `key`): no tracker has this name. */
int trackers_check_name(const char *key, const char *name, struct why *why);

/* The option `trackers`, empty: all. */
bool tracker_is_wanted(const struct string_list *names, const struct tracker *tracker);

/* Names and options of the wanted trackers: 0, or -EINVAL with why. */
int trackers_check(const struct string_list *names, struct why *why);

#endif
