/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time by process, thread and Python line for `underspan top`, from rows of a live measurement:
 * ebpf_off_cpu_profile (all waits), ebpf_gil_wait_profile (holders), ebpf_gc_pause, ebpf_request,
 * ebpf_loop_stall, and the kernel's CPU times. Not thread-safe: the caller has a lock.
 */
#ifndef UNDERSPAN_COMMANDS_TOP_SUMS_H
#define UNDERSPAN_COMMANDS_TOP_SUMS_H

#include <uthash.h>

#include "commands/request_parts.h"
#include "rows/column.h"

/* Waits end in exactly one of the parts up to TOP_IDLE; a wait counts when the wait ends. */
enum top_part {
	TOP_GIL,
	TOP_LOCK,
	TOP_NET,
	TOP_DISK,
	TOP_SLEEP,
	TOP_OTHER, /* poll() of several descriptors, pipes, children, page faults, ... */
	TOP_RUNQ,  /* runnable without a CPU */
	TOP_IDLE,  /* the thread had no work */
	TOP_CPU,
	TOP_GC,	  /* collections; part of CPU */
	TOP_HELD, /* waits of sibling threads for the GIL with this holder at the begin */
	TOP_PARTS
};
extern const char *const top_part_names[TOP_PARTS];

/* Trackers that the times come from, as bits. */
enum top_source {
	TOP_OF_OFF_CPU = 1,
	TOP_OF_GIL_WAIT = 2,
	TOP_OF_GC_PAUSE = 4,
	TOP_OF_REQUEST = 8,
	TOP_OF_LOOP_STALL = 16,
	TOP_OF_HOST = 32, /* CPU times of the kernel, live */
};

enum top_level { TOP_PROCESSES, TOP_THREADS, TOP_LINES, TOP_LEVELS };

/* Sums of a time. */
struct top_sum {
	uint64_t ns[TOP_PARTS];
	double requests, hidden_ns; /* hidden: of requests, as hidden_ms of the view request */
	double request_ns[REQUEST_PARTS];
	uint32_t had_parts, lacked_parts; /* bits: of some request the part was known, unknown */
	uint64_t lag_ns;		  /* the longest stall of an event loop; 0: none */
};

/* A process, the threads of a name (or pool), or a line, of a process. */
struct top_entry {
	enum top_level level;
	uint32_t host_pid;
	uint32_t threads; /* TOP_THREADS: how many had rows */
	char service[64];
	bool has_requests;
	bool nameless;		       /* a single thread without a name yet */
	int64_t busy, waiting;	       /* threads, unread requests, at the moment; -1: not known */
	int64_t busy_max, waiting_max; /* of all the time */
	uint64_t cpu_ns;	       /* last reading */
	struct top_sum now, shown, all;
	struct top_entry *earlier; /* the same of the window before; NULL: none, or one window */
	UT_hash_handle hh;
	char *name; /* printable; within the key */
	char key[];
};

struct top_sums {
	struct top_entry *entries; /* uthash; in any order */
	struct top_tid *tids;
	bool pools;		   /* "Thread-1" and "Thread-2" are one entry */
	uint64_t shown_ns, all_ns; /* lengths of the times; 0: not known */
	uint64_t published_ns;	   /* CLOCK_MONOTONIC */
	uint64_t profile_end_ns, published_profile_ns;
	uint64_t left_out; /* rows without a place in memory */
	/* enum top_source: did not measure for a part of the time since the last publication, of
	 * the published time, of all the time */
	unsigned int lacking, shown_lacks, all_lacks;
};

/* The trackers' names, all that `top` needs. */
enum { TOP_SOURCES = 5 };
extern const struct top_tracker {
	const char *name;
	enum top_source source;
} top_trackers[TOP_SOURCES];

/* The source of a part. */
enum top_source top_source_of(enum top_part part);

/* The part of a cause of off_cpu. */
enum top_part top_part_of(const char *cause);

/*
 * An entry, added if missing; the name may be untrusted. NULL: no place. top_sums_thread() counts
 * the thread, top_sums_of_tid() then finds the entry (NULL: not counted).
 */
struct top_entry *top_sums_entry(struct top_sums *sums, enum top_level level, uint32_t host_pid,
				 const char *name);
struct top_entry *top_sums_thread(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
				  const char *name);
struct top_entry *top_sums_of_tid(const struct top_sums *sums, uint32_t host_tid);

/* Adds a part of requests; `lacked`: of some of these, the part was not measured. */
void top_sum_add_part(struct top_sum *sum, int part, bool known, double ns, bool lacked);

/* The requests lacked hidden parts: hidden_ns is a least value. */
bool top_sum_hidden_is_least(const struct top_sum *sum);

void top_sums_row(struct top_sums *sums, const struct table *table, const void *row);

/* A process that is watched, with or without rows. */
void top_sums_process(struct top_sums *sums, uint32_t host_pid);

/* Every second: `shown` becomes the time since the last publication, if sums have arrived.
 * `lacking`: sources that do not measure now. */
void top_sums_publish(struct top_sums *sums, unsigned int lacking, uint64_t now_ns);

/* At the end: the rows of the last flush are in `all`; `measured_ns`: their time. */
void top_sums_finish(struct top_sums *sums, uint64_t measured_ns);

void top_sums_free(struct top_sums *sums);

#endif
