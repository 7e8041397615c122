/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a program by their addresses. What fills the list is functions.h. */
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

/* For those who fill it: appends, does not sort. -ENOMEM. */
int functions_add(struct functions *functions, struct function f);
/* Sorts and removes duplicates. */
void functions_sort(struct functions *functions);

#endif
