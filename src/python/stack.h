/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the frames in an event (include/python_stack.h) to texts such as
 * "handler (shop/views.py:214)". Each place in the code is read once and remembered.
 */
#ifndef UNDERSPAN_PYTHON_STACK_TEXT_H
#define UNDERSPAN_PYTHON_STACK_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "events/event.h"
#include "pipeline/column.h"
#include "python_stack.h"

struct target;

/*
 * Innermost first. "<gone>": the code object died before it could be looked at; "<unread>": it
 * could not be read, or not yet, or too many had to be at once; last "<cut>": the stack goes on.
 */
struct stack_texts {
	const char *items[PYTHON_STACK_MAX + 1];
};

/*
 * The texts, borrowed from `texts` and the cache: they live until targets_tick(). What is new is
 * read by a job; `lookups` (readers.h) says so, and what became of it.
 */
struct column_strings stack_resolve(uint32_t host_pid, uint64_t event_ns,
				    const struct python_frame *frames,
				    const struct python_stack_info *info,
				    struct stack_texts *texts);

/* The same of the frames behind an event, `size` bytes of them; none where these are not `info`'s.
 */
struct column_strings stack_of_event(const struct event_header *header,
				     const struct python_stack_info *info, const void *frames,
				     size_t size, struct stack_texts *texts);

/*
 * For target.c: frees what is known of a process; of `targets` those of which the most is known, so
 * long as it is too much in all.
 */
void stack_forget(struct target *target);
void stack_trim(struct target *targets);

#endif
