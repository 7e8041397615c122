/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between a tracker and the core. A tracker is a BPF object, a typed event, a row
 * and a table; everything else (loading, draining, enriching, batching, counting) is done once, for
 * all. README.md beside this file says how to add one.
 */
#ifndef UNDERSPAN_TRACKER_H
#define UNDERSPAN_TRACKER_H

#include <bpf/libbpf.h>
#include <stdbool.h>

#include "config.h"
#include "pipeline/row.h"
#include "probe/binaries.h"
#include "probe/processes.h"
#include "util.h"

/* Big enough for every tracker's row; trackers.c checks at compile time. */
enum { TRACKER_ROW_MAX = 2048 };

/* A tracker's word about what it observes beside Python processes, for ebpf_probe_health. */
struct tracker_health {
	bool live;
	const char *method; /* of observing; "" when not live */
	const char *what;   /* the thing observed, an interface; "" the host as a whole */
	const char *reason; /* why not live */
};

/* A row that a tracker makes by itself, outside of its events. */
struct tracker_row {
	size_t table; /* 0: .table, 1: .second_table */
	void *row;
	size_t size;
	/*
	 * Looks up all that the row borrows; the row is written right after. Called again, of a
	 * copy, where an answer takes its time (readers.h). NULL: there is nothing to look up.
	 */
	void (*fill)(void *row);
};

/* Where these go. */
struct tracker_output {
	void (*add)(const struct tracker_output *output, const struct tracker_row *row);
	void (*health)(const struct tracker_output *output, const struct tracker_health *health);
	bool last;    /* the agent stops: all probes are gone, there is no next time */
	size_t index; /* the core's */
	void *context;
};

struct tracker {
	const char *name; /* the stem */
	struct table table;
	size_t event_size; /* exact size of a record in the ring buffer, or of its fixed part */
	size_t extra_max;  /* more bytes than this never follow the fixed part; mostly 0 */
	size_t row_size;   /* the row struct: struct row_common first, the event at event_offset */
	size_t event_offset;
	uint64_t ring_bytes;	  /* a power of two; resident twice over, for it is mapped twice */
	const uint64_t *ring_kib; /* an option for it, instead */
	bool of_host;	    /* observes the host, not processes: it has nothing to say about one */
	bool walks_threads; /* their Python stacks: is told where interpreters lie */
	const struct option *options;
	size_t n_options;

	/*
	 * Opens the skeleton and sets its knobs. `only_chosen`: --pid was given. A tracker that
	 * needs no BPF leaves *ret_skeleton NULL; it lives from tick() alone. Trackers that look at
	 * the same kernel events may return the same skeleton, with maps `<name>_events` and
	 * `<name>_stats` for each; it is loaded once, with what all of them have set.
	 */
	int (*open)(bool only_chosen, struct bpf_object_skeleton **ret_skeleton, struct why *why);
	/* Frees the skeleton, with everything that was loaded and attached through it. */
	void (*close)(void);

	/* All below may be NULL. */

	/* Options that are `reloadable` have changed, while it runs. */
	void (*options_changed)(void);

	/* Checks what the table of options cannot. -EINVAL with why: bad usage. */
	int (*check_options)(struct why *why);

	const struct table *second_table; /* rows of another shape */
	/* Which table an event's row goes to: 0 .table (all, when NULL), 1 .second_table. */
	size_t (*table_of)(const void *row);
	/* Every second, and once more when the agent stops. */
	void (*tick)(const struct tracker_output *output, uint64_t now_ns);

	/*
	 * Gives what followed the event's fixed part in the record, before complete(). Called again
	 * where look-ups take their time (readers.h).
	 */
	void (*take_extra)(void *row, const void *extra, size_t size);
	/*
	 * Fills what the row has and the event has not. `row` is the row struct. Called again where
	 * look-ups of its own take their time.
	 */
	void (*complete)(void *row);
	/*
	 * A Python binary appeared: attach to it inode-wide, put the links into `links` (closed by
	 * the core when the last process of the binary is gone). -ENOTSUP: this binary offers
	 * nothing.
	 */
	int (*attach_binary)(const struct python_binary *binary, struct link_list *links,
			     struct why *why);
	/*
	 * The links are about to be closed on another thread, which takes a while: from now on the
	 * probes must yield nothing.
	 */
	void (*leave_binary)(const struct python_binary *binary);
	/* How the binary's probes were found, for ebpf_probe_health.method. */
	const char *(*binary_method)(const struct python_binary *binary);
	/* A Python process appeared, also by fork; process->file.binary may be NULL. */
	void (*process_appeared)(const struct process *process);
	/*
	 * The agent stops: the probes in binaries must do nothing from now on. Removing them waits
	 * for the kernel's grace periods, one after the other, and comes when all rows are out.
	 */
	void (*quiet)(void);
	/* A tracked process is gone: forget what was kept for it. */
	void (*process_gone)(uint32_t host_pid);
};

/* All trackers, in the order of the README; ends with NULL. */
extern const struct tracker *const all_trackers[];

#endif
