/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for locks, from rows of ebpf_off_cpu, by lock: waits, time, waiting threads, threads that
 * ended the waits, and storms. Idle waits count only for herds.
 *
 * A lock is an address in the memory of a process. Waits without an address, and waits for a
 * message (Condition.wait(), Event.wait(), Queue.get(): each wait has a lock of its own), are
 * summed by place instead.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_LOCKS_H
#define UNDERSPAN_COMMANDS_OFFCPU_LOCKS_H

#include <jansson.h>
#include <stdio.h>

#include "base/hash.h"
#include "rows/column.h"

/* A text kept once, printable. */
struct lock_text {
	UT_hash_handle hh;
	char text[];
};

/* What waits are summed by. */
struct lock_group {
	const struct lock_text *process; /* host and boot */
	uint32_t host_pid;
	uint32_t message; /* a wait for a message: `place` tells the groups apart */
	uint64_t address; /* 0: not known: the same */
	const struct lock_text *place;
};

struct lock_record {
	struct lock_group of;
	uint32_t host_tid, waker_host_tid; /* waker 0: none (a timeout) */
	int64_t begin_us, wake_us, end_us;
	double weight;
	bool idle, thread_named, waker_named; /* names of Python; otherwise the kernel's */
	const struct lock_text *place, *thread, *waker;
};

/* Zero-initialized. */
struct lock_waits {
	/* NULL, or: is the address no lock's? Such waits are not added. */
	bool (*is_no_lock)(uint32_t host_pid, uint64_t address);
	struct lock_record *records;
	size_t n, size;
	struct lock_text *texts;
	double left_out; /* waits beyond the limit */
	bool failed;	 /* out of memory */
};

/* A wait to be added; texts are copied. */
struct lock_wait {
	const char *host, *boot_id, *thread, *waker;
	uint32_t host_pid, host_tid, waker_host_tid;
	uint64_t address;
	int64_t begin_us, wake_us, end_us;
	double weight;
	bool idle, thread_named, waker_named;
	struct column_strings py_stack, user_stack; /* leaf first */
};

void locks_add(struct lock_waits *locks, const struct lock_wait *wait);

/* Adds a row of ebpf_off_cpu; ignores waits other than for locks, and rows of other tables. */
void locks_add_row(struct lock_waits *locks, const struct table *table, const void *row);

/* Drops the waits that are of no lock, as is_no_lock() says now. */
void locks_drop(struct lock_waits *locks);

/*
 * The place of a wait: the innermost frame outside of the modules and functions that locks are made
 * of. *ret_message: the frames show a wait for a message.
 */
const char *locks_place(struct column_strings py_stack, struct column_strings user_stack,
			bool *ret_message);

/*
 * {"locks": [...], "storms": [...], "left_out": waits beyond the limit}; longest sum first, at most
 * a few hundred. NULL: out of memory. Reorders the waits.
 *
 * locks: address (text; null: not known), message, sampled, host, host_pid, place, waits, ms,
 * longest_ms, threads, at_once (threads that waited at the same time, at most), wakers: [{thread,
 * host_tid, times, held_ms}], places: [{place, waits, ms}].
 *
 * sampled: waits are missing, for which weights stand; threads, at_once and held_ms are then least
 * values.
 *
 * held_ms: the time others waited, from the wake-up before until the thread woke one; null for
 * messages.
 *
 * storms: kind (convoy, herd), threads, said, ...; herds of the same waker and place are one, with
 * the largest, and `times`.
 */
json_t *locks_report(struct lock_waits *locks);

/* As a table with sentences about storms; `lines` of the table at most. */
void locks_print(const json_t *report, size_t lines, FILE *out);

void locks_free(struct lock_waits *locks);

#endif
