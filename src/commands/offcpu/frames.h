/* SPDX-License-Identifier: Apache-2.0 */
/* Distinct frames of folded stacks by number, for formats with a table of frames. */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_FRAMES_H
#define UNDERSPAN_COMMANDS_OFFCPU_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"

struct frame_entry {
	int number;
	UT_hash_handle hh;
	char text[]; /* printable */
};

/* Zero-initialized; entries in order of their numbers. */
struct frame_list {
	struct frame_entry *entries; /* uthash by text */
	size_t (*bytes_of)(const char *text);
	size_t bytes; /* of all texts, as bytes_of() says, if given */
	bool failed;  /* out of memory */
};

enum { FRAME_BYTES_MAX = 1000 }; /* longer frames are cut */

/* The number of the frame that begins at `frame` within a folded stack, from 1 on; 0: failed. */
int frame_number(struct frame_list *list, const char *frame);

/* The same of a name outside of a stack, in which a ; is a letter as others. */
int frame_number_of_name(struct frame_list *list, const char *name);

/* The next frame within a folded stack; NULL: there is none. */
const char *frame_next(const char *frame);

void frame_list_free(struct frame_list *list);

/* "run (/srv/app.py:12)" apart. */
struct frame_place {
	size_t name_len; /* of the text before the place */
	const char *file;
	size_t file_len;
	int line;
};

/* False: the frame is no function with file and line. */
bool frame_place_of(const char *text, struct frame_place *ret);

#endif
