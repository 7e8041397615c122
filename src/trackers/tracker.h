/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between a tracker and the core. A tracker is a BPF object, a typed event, a row
 * and a table; loading, draining, enriching, batching and counting are done once, for all trackers.
 * README.md beside this file says how to add one.
 */
#ifndef UNDERSPAN_TRACKERS_TRACKER_H
#define UNDERSPAN_TRACKERS_TRACKER_H

#include <bpf/libbpf.h>
#include <stdbool.h>

#include "base/config.h"
#include "base/exposition.h"
#include "rows/row.h"
#include "rows/row_context.h"
#include "process/binaries.h"
#include "process/processes.h"
#include "base/util.h"

/* Maximal size of a row struct: TRACKER_ROW() checks at compile time. */
enum { TRACKER_ROW_MAX = 2048 };

/* State of something observed other than a Python process, for ebpf_probe_health. */
struct tracker_health {
	bool live;
	const char *method; /* of observing; "" when not live */
	const char *what;   /* the thing observed, an interface; "" the host as a whole */
	const char *reason; /* why not live */
};

/* A row made by a tracker without an event. */
struct tracker_row {
	size_t table; /* 0: .table, 1: .second_table */
	void *row;
	size_t size;
	/*
	 * Looks up everything that the row borrows; the row is written immediately after. Called
	 * again with a copy after pending look-ups (workers/readers.h). NULL: no look-ups.
	 */
	void (*fill)(void *row, struct row_context *context);
};

/* Destination of rows and health. */
struct tracker_output {
	void (*add)(const struct tracker_output *output, const struct tracker_row *row);
	void (*health)(const struct tracker_output *output, const struct tracker_health *health);
	bool last;    /* the last tick: the agent stops, all probes are removed */
	bool out;     /* the governor has taken the tracker out */
	size_t index; /* the core's */
	void *context;
};

enum { MAX_TRACKERS = MAX_PROBE_SETS };

/*
 * Hooks for Python processes. Thread: the collector, except attach(). Each may be NULL.
 */
struct tracker_python {
	bool walks_threads; /* takes Python stacks: needs interpreters' addresses in the kernel */
	bool needs_stacks;  /* no rows of a process whose Python stacks cannot be read */

	/*
	 * A new Python binary: attaches probes to the inode, adds the links to `links`; the core
	 * closes the links after the binary's last process. -ENOTSUP: nothing to attach to.
	 * Thread: a worker (workers/readers.h), concurrent with the collector and with other
	 * binaries. State shared with the collector is per binary->id: the collector reads the
	 * state after the worker's job is done.
	 */
	int (*attach)(const struct python_binary *binary, struct link_list *links, struct why *why);
	/* How the probes were found, for ebpf_probe_health.method. Threads: worker, collector. */
	const char *(*method)(const struct python_binary *binary);
	/* Another thread is about to close the links: from now on the probes must be no-ops. */
	void (*leave)(const struct python_binary *binary);
	/* A new Python process, also by fork; process->file.binary may be NULL. */
	void (*appeared)(const struct process *process);
	/* A tracked process ended: drops its state. */
	void (*gone)(uint32_t host_pid);
	/*
	 * The agent stops: from now on probes in binaries must be no-ops. Probes are removed after
	 * the last rows, because each removal waits for a grace period of the kernel.
	 */
	void (*quiet)(void);
};

/* Thread of all hooks: the collector, which is the main thread at start and stop. */
struct tracker {
	const char *name; /* the stem */
	struct table table;
	size_t event_size; /* exact size of a record in the ring buffer, or of its fixed part */
	size_t extra_max;  /* maximal size of the part after the fixed part; mostly 0 */
	size_t row_size;   /* the row struct: struct row_common first, the event at event_offset */
	size_t event_offset;
	uint64_t ring_bytes;	  /* a power of two; resident twice, because mapped twice */
	const uint64_t *ring_kib; /* replaces ring_bytes: value of an option */
	bool of_host;		  /* observes the host, not processes */
	unsigned int shed_rank;	  /* at the memory limit, rows of higher ranks are dropped first */
	bool limits_its_rows;	  /* no governor.rows_per_second */
	bool sampled_by_skip;	  /* the programs apply struct sampling's skip_shift */
	bool without_durations; /* of its events: the governor keeps each with equal probability */
	bool taken_out_last;	/* by the governor, unless the user has named an order */
	/* In a shared object: prefix of the programs of this tracker; NULL: all other programs */
	const char *program_prefix;
	const struct option *options;
	size_t n_options;
	const struct tracker_python *python; /* NULL: independent of Python processes */

	/*
	 * Opens the skeleton and sets its variables. `only_chosen`: --pid was given. A tracker
	 * without BPF leaves *ret_skeleton NULL and uses tick() only. Trackers of the same kernel
	 * events may return the same skeleton, with maps `<name>_events` and `<name>_stats` for
	 * each tracker; the object is loaded once, with the settings of all.
	 */
	int (*open)(bool only_chosen, struct bpf_object_skeleton **ret_skeleton, struct why *why);
	/* Frees the skeleton, its loaded programs and links. */
	void (*close)(void);

	/* The hooks below may be NULL. */

	/* A reload changed `reloadable` options. */
	void (*options_changed)(void);

	/*
	 * At the stop, and when the governor takes the tracker out: moves the links that the
	 * skeleton does not hold into the list. The kernel may hold up whoever closes a link: a
	 * thread of its own closes the list.
	 */
	void (*give_links)(struct link_list *links);

	/*
	 * The governor takes the tracker out, see take_out.h. NULL: the tracker cannot be taken
	 * out. From now on no interval begins; the programs are detached meanwhile.
	 */
	void (*take_out)(void);
	/*
	 * The programs are detached, and attached again after this call. Drops what is open, which
	 * would end with a wrong duration. Returns how many rows that are, as far as the kernel
	 * side has not counted them. NULL: no interval is ever open.
	 */
	uint64_t (*put_back)(void);

	/* Checks beyond the option table. -EINVAL with why: bad usage. */
	int (*check_options)(struct why *why);

	const struct table *second_table; /* rows of another shape */
	/* Table of an event's row: 0 .table, 1 .second_table; NULL: always 0. */
	size_t (*table_of)(const void *row);
	/* Every second, and once at the stop. */
	void (*tick)(const struct tracker_output *output, uint64_t now_ns);
	/* Adds the tracker's families of metrics to a page that is asked for. */
	void (*expose)(struct exposition *to);

	/*
	 * Takes the part of the record after the fixed part, before complete(). Called again after
	 * pending look-ups (workers/readers.h).
	 */
	void (*take_extra)(void *row, const void *extra, size_t size, struct row_context *context);
	/*
	 * Sets members of the row struct that the event lacks. Called again after pending
	 * look-ups.
	 */
	void (*complete)(void *row, struct row_context *context);
};

/* Members derived from the row struct; its member `event` is the event. */
#define TRACKER_ROW(type)                                                                          \
	.event_size = sizeof(((type *)0)->event), .event_offset = offsetof(type, event),           \
	.row_size = sizeof(type) +                                                                 \
		    0 * sizeof(struct {                                                            \
			    _Static_assert(sizeof(type) <= TRACKER_ROW_MAX, "TRACKER_ROW_MAX");    \
			    char a_member;                                                         \
		    })

/* Whether the tracker attaches probes to Python binaries. */
static inline bool tracker_attaches(const struct tracker *tracker)
{
	return tracker->python && tracker->python->attach;
}

static inline bool tracker_walks_threads(const struct tracker *tracker)
{
	return tracker->python && tracker->python->walks_threads;
}

/* Whether a process has no rows if the interpreter must not be read. */
static inline bool tracker_needs_interpreter(const struct tracker *tracker)
{
	return tracker_attaches(tracker) || (tracker->python && tracker->python->needs_stacks);
}

/* Its options as a table; n = 0 where it has none. */
static inline struct option_table tracker_options(const struct tracker *tracker)
{
	return (struct option_table){ tracker->options, tracker->n_options, tracker->name };
}

/* Those of all.h; ends with NULL. */
extern const struct tracker *const all_trackers[];

#endif
