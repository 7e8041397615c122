/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a program by address; functions.h fills the list. */
#ifndef UNDERSPAN_ELF_FUNCTION_LIST_H
#define UNDERSPAN_ELF_FUNCTION_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct function {
	uint64_t start, end; /* addresses, end exclusive */
	bool is_part;	     /* a moved part, never called */
};

struct functions {
	struct function *items; /* sorted by start, unique */
	size_t n, allocated;
};

void functions_free(struct functions *functions);

/* The entry that contains `va`, or NULL. */
const struct function *functions_find(const struct functions *functions, uint64_t va);

/* Appends without sorting. -ENOMEM. */
int functions_add(struct functions *functions, struct function f);
/* Sorts and removes duplicates. */
void functions_sort(struct functions *functions);

#endif
