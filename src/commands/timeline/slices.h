/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What threads and requests did in a time, as slices of tracks, for `underspan timeline`: made from
 * rows (of a database or live), written by perfetto.h.
 */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_SLICES_H
#define UNDERSPAN_COMMANDS_TIMELINE_SLICES_H

#include <jansson.h>
#include <stdbool.h>

#include "base/hash.h"
#include "commands/timeline/event.h"

/* The tracks of a process; then those of its threads. */
enum timeline_track {
	TRACK_REQUESTS,
	TRACK_HANDOFFS,
	TRACK_GIL_HOLDER,
	TRACK_THREAD, /* waits, collections and stalls of a thread, nested; samples in between */
};

/*
 * The kinds of rows. `name`: the tracker and, with "ebpf_" before it, the table. A file holds
 * TIMELINE_ROWS_MAX of each, see limit.h.
 */
enum { TIMELINE_KINDS = 7, TIMELINE_ROWS_MAX = 40000 };
struct timeline;
extern const struct timeline_kind {
	const char *name, *events, *kept; /* kept: beside those of the slowest requests */
	void (*add)(struct timeline *t, const json_t *row);
} timeline_kinds[TIMELINE_KINDS];

/* Rows that have no slice. */
struct timeline_left_out {
	uint64_t rows, ns;
};

/* Parts of a request until a thread has it, and the rest, one after the other. */
enum { SLICE_PARTS = 5 };

struct slice {
	uint32_t host_pid, host_tid; /* tid 0: a track of the process */
	uint32_t thread;	     /* of the row, also of tracks of the process */
	enum timeline_track track;
	uint8_t kind; /* index into timeline_kinds */
	bool idle;
	bool instant;  /* a sample: at begin_ns, for duration_ns of CPU time */
	uint32_t lane; /* slices that do not nest are in lanes */
	uint64_t begin_ns, duration_ns, end_ns;
	uint64_t parts_ns[SLICE_PARTS]; /* of requests */
	char *event; /* heap: name and annotations, encoded; then brief and look */
	uint32_t event_bytes;
	const char *brief, *look; /* as in struct event */
};

struct timeline_thread {
	uint32_t key[2]; /* host_pid, host_tid */
	bool main;
	char name[128], comm[32]; /* printable; "": not known */
	UT_hash_handle hh;
};

struct timeline_process {
	uint32_t host_pid;
	char comm[32], service[128];
	UT_hash_handle hh;
};

/* Times are nanoseconds since the epoch. */
struct timeline {
	struct slice *slices;
	size_t n, capacity;
	struct timeline_thread *threads;
	struct timeline_process *processes;
	struct holding *holdings; /* of the GIL; become slices at the end */
	size_t n_holdings, holdings_capacity, holdings_left_out;
	size_t n_of[TIMELINE_KINDS]; /* slices of a kind of row */
	struct timeline_left_out left_out[TIMELINE_KINDS];
	struct event event;   /* of the next slice */
	uint8_t kind;	      /* of the row being added */
	char host[256];	      /* of the first row */
	char other_host[256]; /* "": all rows are of one host */
	int err;
};

/* Adds a row with the members of sql/timeline/NAME.sql; texts are untrusted. Sets t->err. */
void timeline_add(struct timeline *t, const struct timeline_kind *kind, const json_t *row);

/* After the last row: slices of the GIL's holders. */
void timeline_finish(struct timeline *t);

void timeline_free(struct timeline *t);

#endif
