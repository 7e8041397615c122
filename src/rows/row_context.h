/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look-ups of one row. A look-up whose answer has to be read first yields "<unread>" or nothing
 * and calls row_waits_for(): the row may be made again with the answer. Zeroed for each attempt.
 */
#ifndef UNDERSPAN_ROWS_ROW_CONTEXT_H
#define UNDERSPAN_ROWS_ROW_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

struct row_context {
	uint32_t waits_for; /* host pid of a pending answer; 0: none */
	bool gone;	    /* code object freed before the read */
	bool unread;	    /* code or function name not read */
	bool unnamed;	    /* thread of a Python process without a name */
};

/* Without effect while the process's reads are stalled: the answer would come too late. */
void row_waits_for(struct row_context *context, uint32_t host_pid);

#endif
