/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * What every event of a tracker starts with, on both sides of the ring buffer.
 * Wire rules: __u8..__u64 and byte arrays only, explicit padding, natural alignment.
 */
#ifndef UNDERSPAN_EVENT_H
#define UNDERSPAN_EVENT_H

#include <linux/types.h>

enum { EVENT_COMM_LEN = 16 };

struct event_header {
	__u64 start_ns;	 /* CLOCK_MONOTONIC */
	__u64 end_ns;	 /* CLOCK_MONOTONIC */
	__u64 cgroup_id; /* of the thread, in the unified hierarchy; 1 or 0 says nothing */
	__u64 ident;	 /* of the thread, its pthread_self(); 0: not known */
	__u32 pid;	 /* as the thread's innermost PID namespace counts */
	__u32 tid;
	__u32 host_pid; /* as the host counts */
	__u32 host_tid;
	char comm[EVENT_COMM_LEN]; /* of the thread */
	/* how the event was chosen among others, where not all are reported: see struct sampling */
	__u8 sampling_level;
	__u8 skip_shift;
	__u8 pad[6];
};

/*
 * What the governor has turned down, per tracker (src/agent/governor.c). Of events that lasted d,
 * one is kept with the probability p = max(d / (1 ms << level), 1 / (1 << level)), at most 1: the
 * longer the surer. With `skip_shift`, one in (1 << skip_shift) is looked at in the first place.
 * The row's weight is the reciprocal of both: sums of weights are right whatever the level.
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

/* Counters each BPF object keeps per CPU in its map `stats`. */
enum event_stat {
	STAT_SEEN,	 /* occurrences the tracker had to decide about */
	STAT_FILTERED,	 /* decided: no row (not tracked, not over the threshold, not an event) */
	STAT_LOST_RING,	 /* rows lost: ring buffer full */
	STAT_LOST_STATE, /* rows lost: a state map was full */
	STAT_SAMPLED,	 /* left out by the governor; the weights of the others stand for them */
	STAT_READ_FAIL,	 /* memory of the target could not be read; the row went without it */
	/* Python stacks that rows went without, though it was long enough: */
	STAT_STACK_LATE,  /* it was over before a moment came at which one could be taken */
	STAT_STACK_STATE, /* the thread's state in Python was not found, or had no frames */
	STAT_STACK_MOVED, /* the thread ran on while it was looked at */
	STAT_STACK_ROOM,  /* a map was full */
	STAT_STACK_SHARE, /* stacks had cost the process their share of time already */
	STAT_MAX,
};

#endif
