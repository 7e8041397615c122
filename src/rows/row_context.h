/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look-ups of one row. A look-up with an unread answer yields "<unread>" or nothing and calls
 * row_waits_for(): the row may be made again with the answer. Zeroed for each attempt.
 */
#ifndef UNDERSPAN_ROWS_ROW_CONTEXT_H
#define UNDERSPAN_ROWS_ROW_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "process/process.h"

struct row_context {
	uint32_t waits_for; /* host pid of a pending answer; 0: none */
	bool gone;	    /* code object freed before the read */
	bool unread;	    /* code or function name not read */
	bool unnamed;	    /* thread of a Python process without a name */
	/* row_process()'s: the process of the row's event, found once */
	uint32_t host_pid; /* 0: not looked for so far */
	uint64_t event_ns;
	struct process *process;
};

/* See process_of_event(). */
struct process *row_process(struct row_context *context, uint32_t host_pid, uint64_t event_ns);

/* Without effect while the process's reads are stalled: the answer would come too late. */
void row_waits_for(struct row_context *context, uint32_t host_pid);

#endif
