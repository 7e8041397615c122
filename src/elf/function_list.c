// SPDX-License-Identifier: Apache-2.0
/* The table of a program's functions. See function_list.h. */
#include "elf/function_list.h"

#include <errno.h>
#include <stdlib.h>

#include "base/budget.h"

int functions_add(struct functions *functions, struct function f)
{
	if (functions->n == functions->allocated) {
		size_t n = functions->allocated ? functions->allocated * 2 : 1024;
		size_t more = (n - functions->allocated) * sizeof(*functions->items);
		void *items;

		if (!budget_take(more))
			return -ENOMEM;
		items = reallocarray(functions->items, n, sizeof(*functions->items));
		if (!items) {
			budget_give(more);
			return -ENOMEM;
		}
		functions->items = items;
		functions->allocated = n;
	}
	functions->items[functions->n++] = f;
	return 0;
}

void functions_free(struct functions *functions)
{
	budget_give(functions->allocated * sizeof(*functions->items));
	free(functions->items);
	*functions = (struct functions){};
}

/* By start; at equal starts the longer range first. */
static int compare(const void *left, const void *right)
{
	const struct function *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	return 0;
}

void functions_sort(struct functions *functions)
{
	size_t kept = 0;

	if (!functions->n)
		return;
	qsort(functions->items, functions->n, sizeof(*functions->items), compare);
	for (size_t i = 1; i < functions->n; i++) {
		if (functions->items[i].start != functions->items[kept].start)
			functions->items[++kept] = functions->items[i];
	}
	functions->n = kept + 1;
}

const struct function *functions_find(const struct functions *functions, uint64_t va)
{
	size_t low = 0, high = functions->n;

	while (low < high) { /* first entry with start > va */
		size_t middle = low + (high - low) / 2;

		if (functions->items[middle].start > va)
			high = middle;
		else
			low = middle + 1;
	}
	if (!low || va >= functions->items[low - 1].end)
		return NULL;
	return &functions->items[low - 1];
}
