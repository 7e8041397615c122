/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks as flame graph tools take them: a line each, "root;frame;leaf" and a number, here
 * microseconds. Two sets of them make a difference.
 */
#ifndef UNDERSPAN_FOLDED_H
#define UNDERSPAN_FOLDED_H

#include <stdio.h>
#include <uthash.h>

#include "pipeline/buffer.h"
#include "util.h"

struct folded_stack {
	uint64_t ns;	/* while it is summed up */
	uint64_t value; /* microseconds */
	uint64_t before;
	UT_hash_handle hh;
	char text[];
};

struct folded {
	struct folded_stack *stacks; /* a uthash table by text; in the order of the last sorting */
};

enum { FOLDED_FRAMES_MAX = 1024 }; /* of a stack that is read */

/* Appends a frame to a stack's text, which it cannot leave whatever it is: one line, no ';'. */
int folded_frame(struct buffer *text, const char *frame);

/* "run (/usr/lib/python3.11/threading.py:982)" as "run (threading.py:982)"; returns `buf`. */
char *folded_short_frame(const char *frame, size_t len, char *buf, size_t size);

/* The stack with this text, made if there is none. NULL: out of memory. */
struct folded_stack *folded_get(struct folded *folded, const char *text, size_t len);

/*
 * Values from nanoseconds, so that they add up to the sum of these, to the microsecond. Stacks are
 * in the order of their texts then; such as come to nothing have the value 0.
 */
void folded_round(struct folded *folded);

/* Orders: by text, so that stacks with equal roots are neighbours; the largest value first; the
 * largest change first. */
void folded_sort_texts(struct folded *folded);
void folded_sort_values(struct folded *folded);
void folded_sort_changes(struct folded *folded);
int folded_compare_texts(const char *a, const char *b);

uint64_t folded_total(const struct folded *folded);
uint64_t folded_total_before(const struct folded *folded);

/*
 * Reads such lines into `before` of stacks that are there or made. -EINVAL or -ENOMEM with why,
 * which names `name` and the line. folded_read() takes it from a file.
 */
int folded_parse(struct folded *folded, const char *data, size_t len, const char *name,
		 struct why *why);
int folded_read(struct folded *folded, const char *path, struct why *why);

/* Writes the lines; `diff`: with both numbers, before first, as difffolded.pl does. */
int folded_write(const struct folded *folded, bool diff, FILE *out);

void folded_free(struct folded *folded);

#endif
