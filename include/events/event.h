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
};

/* Counters each BPF object keeps per CPU in its map `stats`. */
enum event_stat {
	STAT_SEEN,	 /* occurrences the tracker had to decide about */
	STAT_FILTERED,	 /* decided: no row (not tracked, not over the threshold, not an event) */
	STAT_LOST_RING,	 /* rows lost: ring buffer full */
	STAT_LOST_STATE, /* rows lost: a state map was full */
	STAT_READ_FAIL,	 /* memory of the target could not be read; the row went without it */
	STAT_MAX,
};

#endif
