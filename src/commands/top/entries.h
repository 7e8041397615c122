/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes, threads and Python lines of `top` with their sums, found by what a row says of its
 * thread. Not thread-safe: the caller has a lock.
 */
#ifndef UNDERSPAN_COMMANDS_TOP_ENTRIES_H
#define UNDERSPAN_COMMANDS_TOP_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "commands/request_parts.h"

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

enum top_level { TOP_PROCESSES, TOP_THREADS, TOP_LINES, TOP_LEVELS };

/* Sums of a time. */
struct top_sum {
	uint64_t ns[TOP_PARTS];
	double requests, hidden_ns; /* hidden: of requests, as hidden_ms of the view request */
	double request_ns[REQUEST_PARTS];
	uint32_t had_parts, lacked_parts; /* bits: of some request the part was known, unknown */
	uint64_t lag_ns;		  /* the longest stall of an event loop; 0: none */
	bool cpu_lost; /* a thread or process ended: its CPU time since the last reading is missing
			*/
	uint64_t sampled_ns; /* CPU time by samples, beside the kernel's */
};

/* A process, the threads of a name (or pool), or a line, of a process. */
struct top_entry {
	enum top_level level;
	uint32_t host_pid;
	uint32_t threads; /* TOP_THREADS: how many had rows */
	char service[64];
	bool has_requests;
	bool has_samples;	       /* TOP_PROCESSES, live */
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
	bool cpu_by_samples;	   /* of processes and threads, too: no times of the kernel */
	uint64_t shown_ns, all_ns; /* lengths of the times; 0: not known */
	uint64_t published_ns;	   /* CLOCK_MONOTONIC */
	uint64_t profile_end_ns, published_profile_ns;
	uint64_t left_out; /* rows without a place in memory */
	/* enum top_source: did not measure for a part of the time since the last publication, of
	 * the published time, of all the time */
	unsigned int lacking, shown_lacks, all_lacks;
};

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

/* CPU time that the kernel did not tell until a thread's end is that of the samples. */
uint64_t top_part_ns(const struct top_sum *sum, enum top_part part);

/* Whether some of the CPU time was read or sampled, or nothing of it is missing. */
bool top_sum_knows_cpu(const struct top_sum *sum);

/* The process's entry, with the CPU times of its threads from now on. NULL: no place. */
struct top_entry *top_entry_of_process(struct top_sums *sums, uint32_t host_pid);

/* The entry of the thread's name; a thread keeps its name in rows without one (`nameless`). */
struct top_entry *top_entry_of_thread(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
				      const char *name, bool nameless);

/* The entry is the thread's: counts the thread. */
void top_entry_note_thread(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
			   struct top_entry *entry);

void top_sum_add(struct top_sum *to, const struct top_sum *from);

/* Adds the kernel's CPU times since the last reading to `now` of processes and threads. */
void top_entries_read_cpu(struct top_sums *sums);

void top_sums_free(struct top_sums *sums);

#endif
