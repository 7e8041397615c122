/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * The header of every event, on both sides of the ring buffer. Wire format rules: only __u8..__u64
 * and byte arrays, explicit padding, natural alignment.
 */
#ifndef UNDERSPAN_EVENT_H
#define UNDERSPAN_EVENT_H

#include <linux/types.h>

enum { EVENT_COMM_LEN = 16 };

struct event_header {
	__u64 start_ns;	 /* CLOCK_MONOTONIC */
	__u64 end_ns;	 /* CLOCK_MONOTONIC */
	__u64 cgroup_id; /* of the thread, in the unified hierarchy; 0 and 1 mean: unknown */
	__u64 ident;	 /* pthread_self() of the thread; 0: unknown */
	__u32 pid;	 /* in the thread's innermost PID namespace */
	__u32 tid;
	__u32 host_pid; /* in the host's PID namespace */
	__u32 host_tid;
	char comm[EVENT_COMM_LEN]; /* of the thread */
	/* sampling rates, see struct sampling */
	__u8 sampling_level;
	__u8 skip_shift;
	__u8 pad[2];
	__u32 pidns; /* inode of the thread's PID namespace; 0: unknown */
};

/*
 * Sampling parameters of a tracker, set by the governor (src/agent/governor.c). An event of
 * duration d is kept with probability p = max(d / (1 ms << level), 1 / (1 << level)), at most 1:
 * long events are preferred. With `skip_shift`, only 1 in (1 << skip_shift) events is examined at
 * all. A row's weight is the reciprocal of both factors, so sums of weights are correct at any
 * level.
 */
struct sampling {
	__u32 level; /* 0: every event */
	__u32 skip_shift;
};
enum { SAMPLING_LEVEL_MAX = 12, SAMPLING_FIRST_NS = 1000000 };

/* The probability to keep an event, in units of 2^-32; 1 << 32: always. */
static inline __u64 sampling_probability(__u64 duration_ns, __u32 level)
{
	__u64 long_ns, probability, least;

	if (!level || level > SAMPLING_LEVEL_MAX)
		return 1ULL << 32;
	long_ns = (__u64)SAMPLING_FIRST_NS << level;
	if (duration_ns >= long_ns)
		return 1ULL << 32;
	probability = (duration_ns << 32) / long_ns;
	least = 1ULL << (32 - level);
	return probability > least ? probability : least;
}

/* Counters per CPU, in the map `stats` of each BPF object. */
enum event_stat {
	STAT_SEEN,	 /* occurrences the tracker had to decide about */
	STAT_FILTERED,	 /* decided: no row (not tracked, not over the threshold, not an event) */
	STAT_LOST_RING,	 /* rows lost: ring buffer full */
	STAT_LOST_STATE, /* rows lost: a state map was full, or the end was not seen */
	STAT_SAMPLED,	 /* sampled out; the weights of kept events represent them */
	STAT_READ_FAIL,	 /* unreadable memory of the target; the row lacks that data */
	/* Python stacks missing from rows that were long enough for a stack: */
	STAT_STACK_LATE,  /* no hook ran in time to walk the stack */
	STAT_STACK_STATE, /* the thread's state in Python was not found, or had no frames */
	STAT_STACK_MOVED, /* the thread ran during the walk */
	STAT_STACK_ROOM,  /* a map was full */
	STAT_STACK_SHARE, /* the token bucket for stack walks was empty */
	STAT_MAX,
};

#endif
