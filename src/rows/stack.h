/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of an event (include/python_stack.h) as texts such as "handler
 * (shop/views.py:214)". Each code location is read once and cached.
 */
#ifndef UNDERSPAN_ROWS_STACK_H
#define UNDERSPAN_ROWS_STACK_H

#include <stddef.h>
#include <stdint.h>

#include "events/event.h"
#include "rows/column.h"
#include "python_stack.h"
#include "rows/row_context.h"

/*
 * Innermost first. "<gone>": code object freed before the read; "<unread>": unreadable, pending, or
 * over the rate limit; last "<cut>": truncated stack.
 */
struct stack_texts {
	const char *items[PYTHON_STACK_MAX + 1];
};

/*
 * The texts, borrowed from `texts` and the cache until stack_trim(). Unknown frames are read by a
 * job; `context` says so, and the result.
 */
struct column_strings stack_resolve(struct row_context *context, uint32_t host_pid,
				    uint64_t event_ns, const struct python_frame *frames,
				    const struct python_stack_info *info,
				    struct stack_texts *texts);

/* The same for the `size` bytes of frames after an event; empty if inconsistent with `info`. */
struct column_strings stack_of_event(struct row_context *context, const struct event_header *header,
				     const struct python_stack_info *info, const void *frames,
				     size_t size, struct stack_texts *texts);

/*
 * About every second: evicts the largest processes' entries while over the total limit. Invalidates
 * texts resolved before.
 */
void stack_trim(void);

#endif
