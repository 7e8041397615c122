/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks for flame graph tools: lines of "root;frame;leaf" and a number, here microseconds.
 * Two sets can be compared.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_FOLDED_H
#define UNDERSPAN_COMMANDS_OFFCPU_FOLDED_H

#include <stdio.h>

#include "base/hash.h"
#include "base/buffer.h"
#include "base/util.h"

struct folded_stack {
	uint64_t ns;	/* during summation */
	uint64_t value; /* microseconds */
	uint64_t before;
	UT_hash_handle hh;
	char text[];
};

struct folded {
	struct folded_stack *stacks; /* uthash table by text, in order of the last sort */
};

enum { FOLDED_FRAMES_MAX = 1024 }; /* maximum frames of a stack read */

/* Appends a frame to a stack's text, as a single line without ';'. */
int folded_frame(struct buffer *text, const char *frame);

/* "run (/usr/lib/python3.11/threading.py:982)" as "run (threading.py:982)"; returns `buf`. */
char *folded_short_frame(const char *frame, size_t len, char *buf, size_t size);

/* Finds or creates the stack with this text. NULL: out of memory. */
struct folded_stack *folded_get(struct folded *folded, const char *text, size_t len);

/*
 * Rounds nanoseconds to microseconds so that values add up to the rounded total. Sorts the stacks
 * by text; small stacks may get 0.
 */
void folded_round(struct folded *folded);

/* Sort orders: by text (stacks with equal roots adjacent); largest value first; largest change
 * first. */
void folded_sort_texts(struct folded *folded);
void folded_sort_values(struct folded *folded);
void folded_sort_changes(struct folded *folded);
void folded_sort_idle_last(struct folded *folded); /* keeps the last order otherwise */
int folded_compare_texts(const char *a, const char *b);

/* "lock" of "futex [lock, idle]", the last frame before a waker's; "cpu" for no wait. */
const char *folded_cause(const struct folded_stack *stack, size_t *ret_len);
bool folded_is_of(const struct folded_stack *stack, const char *cause);
bool folded_is_idle(const struct folded_stack *stack);

uint64_t folded_total(const struct folded *folded);
uint64_t folded_total_idle(const struct folded *folded);
uint64_t folded_total_before(const struct folded *folded);

/*
 * Parses folded lines into `before` of existing or new stacks. -EINVAL or -ENOMEM with why, naming
 * `name` and the line. folded_read() reads a file.
 */
int folded_parse(struct folded *folded, const char *data, size_t len, const char *name,
		 struct why *why);
int folded_read(struct folded *folded, const char *path, struct why *why);

/* Writes the lines; `diff`: both numbers, before first, as in difffolded.pl. */
int folded_write(const struct folded *folded, bool diff, FILE *out);

void folded_free(struct folded *folded);

#endif
