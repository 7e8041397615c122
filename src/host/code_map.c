// SPDX-License-Identifier: Apache-2.0
/* Executable mappings of a process. See code_map.h. */
#include "host/code_map.h"

#include <string.h>

#include "host/proc.h"

enum { MAX_MAPPINGS = 4096, MAX_LINES = 65536 };

struct list {
	struct mapping *items;
	size_t n;
};

static void name_it(const struct proc_mapping *m, char name[64])
{
	const char *base = strrchr(m->name, '/');

	if (base)
		snprintf(name, 64, "[%.60s%s]", base + 1, m->deleted ? " (deleted)" : "");
	else if (*m->name) /* [vdso] */
		snprintf(name, 64, "%.60s", m->name);
	else /* code generated at run time */
		snprintf(name, 64, "[anonymous]");
}

static int add_code(const struct proc_mapping *m, void *context)
{
	struct list *list = context;
	struct mapping *grown;

	if (!m->executable)
		return 0;
	grown = reallocarray(list->items, list->n + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	list->items = grown;
	grown += list->n++;
	*grown = (struct mapping){ .low = m->low,
				   .high = m->high,
				   .offset = m->offset,
				   .file_id = { m->major, m->minor, m->ino } };
	name_it(m, grown->name);
	return list->n == MAX_MAPPINGS;
}

size_t code_map_read(uint32_t host_pid, struct mapping **ret)
{
	struct list list = { 0 };

	proc_walk_mappings(host_pid, MAX_LINES, add_code, &list);
	*ret = list.items;
	return list.n;
}

struct mapping *code_map_find(struct mapping *items, size_t n, uint64_t address)
{
	size_t low = 0, high = n;

	while (low < high) { /* the kernel lists them in order */
		size_t middle = low + (high - low) / 2;
		struct mapping *m = &items[middle];

		if (address < m->low)
			high = middle;
		else if (address >= m->high)
			low = middle + 1;
		else
			return m;
	}
	return NULL;
}
