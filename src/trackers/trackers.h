/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trackers that run: opens, loads and attaches each by itself, so that one that cannot run
 * says why and the others go on; attaches them to Python binaries; reads their counters.
 */
#ifndef UNDERSPAN_TRACKERS_TRACKERS_H
#define UNDERSPAN_TRACKERS_TRACKERS_H

#include "events/event.h"
#include "trackers/tracker.h"

struct tracker_set;

struct running_tracker {
	const struct tracker *tracker;
	struct bpf_object_skeleton *skeleton;
	int stats_fd, sampling_fd; /* maps; -1: it has no BPF object */
	size_t tables[2];	   /* the pipeline's handles: .table, .second_table */
	uint64_t bad_events;	   /* records of a wrong size */
	uint64_t of_refused;	   /* events of processes that are no Python after all */
	uint64_t rows;		   /* of both its tables */
	uint64_t own_rows;	   /* of its first table, made outside of its events */
	bool dead;		   /* could not be attached: stands in `refused` */
	struct tracker_set *set;
	bool failed; /* while the set is opened */
};

/* Called with each complete record of a tracker's ring buffer (size checked). */
typedef void (*tracker_on_event)(void *context, struct running_tracker *running, const void *event,
				 size_t size);

/* One that was wanted and cannot run. */
struct refused_tracker {
	const struct tracker *tracker;
	struct why why;
};

struct tracker_set {
	struct running_tracker items[MAX_TRACKERS];
	size_t n;
	struct refused_tracker refused[MAX_TRACKERS];
	size_t n_refused;
	/* one reader a ring buffer: none waits until another is empty, which in a storm it
	 * never is */
	struct ring_buffer *rings[MAX_TRACKERS + 1]; /* the first: which processes there are */
	size_t n_rings;
	size_t budget; /* records that may still be taken from the ring at hand */
	struct bpf_object_skeleton *process_skeleton; /* bpf/process.bpf.c */
	int process_stats_fd;
	bool walks_threads;	 /* one of the trackers does */
	uint64_t map_most;	 /* bytes that one BPF map may take, see map_memory.h */
	uint64_t process_events; /* records of its ring buffer */
	uint64_t process_cpu_ns; /* CPU time spent on them, by the reader of the rings */
	bool only_chosen;
	tracker_on_event on_event;
	void *on_event_context;
};

/*
 * Loads the process object and then the named trackers (all when `names` is empty). A tracker
 * that fails is logged and left out. Their maps take `map_bytes` at most, when they are full. Fails
 * when a name or option is wrong (-EINVAL), the process object cannot run, or no tracker can.
 */
int tracker_set_open(struct tracker_set *set, const struct string_list *names, bool only_chosen,
		     uint64_t map_bytes, tracker_on_event on_event, void *context, struct why *why);

/*
 * Attaches the programs that need no binary. From here on events come. A tracker that cannot be
 * attached is logged and moved to `refused`; fails when the process object cannot, or none is left.
 */
int tracker_set_attach(struct tracker_set *set, struct why *why);

/* Hooks of process/binaries.h; `set` is a tracker_set. */
void tracker_set_attach_binary(struct python_binary *binary, void *set);
void tracker_set_leave_binary(const struct python_binary *binary, void *set);

void tracker_set_process_appeared(struct tracker_set *set, const struct process *process);
void tracker_set_process_gone(struct tracker_set *set, uint32_t host_pid);

void tracker_set_tick(struct tracker_set *set, const struct tracker_output *output,
		      uint64_t now_ns);

/* Options have changed: tells those that run. */
void tracker_set_options_changed(struct tracker_set *set);

/* Sums the per-CPU counters of a map `stats`; all 0 when there is none (-1). */
void tracker_set_read_stats(int stats_fd, uint64_t ret[STAT_MAX]);

/*
 * Hands on what is in the ring buffers, a few hundred records from each in turn, until all are
 * empty or, should that not come about, the time (CLOCK_MONOTONIC) is over.
 */
void tracker_set_consume(struct tracker_set *set, uint64_t until_ns);

/*
 * One record of the tracker's ring buffer: handed on, or counted in bad_events where its size is
 * not one that an event of the tracker can have.
 */
void running_tracker_take(struct running_tracker *running, const void *record, size_t size);

/*
 * Index of the tracker that a program belongs to. In an object that several trackers share: by the
 * program's prefix, else the last of them. set->n: the object is of none.
 */
size_t tracker_set_owner(const struct tracker_set *set, const struct bpf_object_skeleton *skeleton,
			 const struct bpf_program *program);

/* Whether one of its programs runs on every system call of the host, see host/every_call.h. */
bool tracker_runs_on_every_call(const struct running_tracker *running);

/* Stops the producers but leaves what is in the ring buffers; then tracker_set_close(). */
void tracker_set_detach(struct tracker_set *set);
void tracker_set_close(struct tracker_set *set);

/* Of its rows, see pipeline_set_shed_rank(). `first`: the option; empty: as the trackers say. */
unsigned int tracker_shed_rank(const struct tracker *tracker, const struct string_list *first);

/* -EINVAL with why, which begins with `key`: there is no tracker of this name. */
int trackers_check_name(const char *key, const char *name, struct why *why);

#endif
