/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a row of off_cpu: system call, stacks without Python's, waker. */
#ifndef UNDERSPAN_TRACKERS_OFF_CPU_NAMES_H
#define UNDERSPAN_TRACKERS_OFF_CPU_NAMES_H

#include "events/off_cpu.h"
#include "rows/column.h"
#include "rows/row_context.h"

/* Data added in user space, for an interval or a sum of intervals. */
struct off_cpu_names {
	const char *syscall, *waker_thread_name;
	char state[2];
	struct column_strings kernel_stack, user_stack, py_stack, waker_stack;
};

/* All but py_stack, for an event that ended at header.end_ns. */
void off_cpu_fill_names(struct row_context *context, const struct off_cpu_event *event,
			struct off_cpu_names *names);

/*
 * Of a sum from header.start_ns to header.end_ns, after a look-up for its start: the waker may have
 * begun later, and have ended since. `unnamed`: context->unnamed before that look-up.
 */
void off_cpu_name_late_waker(struct row_context *context, const struct off_cpu_event *first,
			     bool unnamed, struct off_cpu_names *names);

/*
 * Classifies waits for a lock or a pipe as idle or blocked, by py_stack. A thread that ends with
 * its process may never have been walked: without a Python stack it is a library's, if module
 * threading does not know it.
 */
void off_cpu_judge_idle(struct row_context *context, const struct event_header *header,
			uint64_t event_ns, struct off_cpu *off, const struct off_cpu_names *names);

#endif
