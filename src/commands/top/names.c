// SPDX-License-Identifier: Apache-2.0
/* Processes of a window. See names.h. */
#include "commands/top/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/report.h"

enum { NAMES_MAX = 100000 }; /* as rows of a question */

struct top_group {
	uint32_t number;
	UT_hash_handle hh;
	char key[66]; /* "s", and the service; "c", and the name */
};

struct top_name *top_names_find(const struct top_names *names, uint32_t host_pid)
{
	struct top_name *n;

	HASH_FIND(hh, names->items, &host_pid, sizeof(host_pid), n);
	return n;
}

struct top_name *top_names_note(struct top_names *names, const json_t *row)
{
	uint32_t host_pid = (uint32_t)report_number(row, "host_pid");
	bool main = report_number(row, "main") > 0;
	struct top_name *n = top_names_find(names, host_pid);

	if (!n) {
		n = HASH_COUNT(names->items) < NAMES_MAX ? calloc(1, sizeof(*n)) : NULL;
		if (!n)
			return NULL;
		n->host_pid = host_pid;
		HASH_ADD(hh, names->items, host_pid, sizeof(n->host_pid), n);
	}
	if (!*n->comm || (main && !n->main))
		snprintf(n->comm, sizeof(n->comm), "%.63s", report_text(row, "comm"));
	n->main |= main;
	if (!*n->service)
		snprintf(n->service, sizeof(n->service), "%.63s", report_text(row, "service"));
	return n;
}

static uint32_t group_of(struct top_groups *groups, const struct top_name *n)
{
	struct top_group *g;
	char key[sizeof(g->key)];
	int len = snprintf(key, sizeof(key), "%c%s", *n->service ? 's' : 'c',
			   *n->service ? n->service : n->comm);

	HASH_FIND(hh, groups->items, key, (size_t)len, g);
	if (g)
		return g->number;
	g = calloc(1, sizeof(*g));
	if (!g)
		return 0;
	memcpy(g->key, key, sizeof(key));
	g->number = HASH_COUNT(groups->items) + 1;
	HASH_ADD(hh, groups->items, key, (size_t)len, g);
	return g->number;
}

uint32_t top_names_number(struct top_names *names, struct top_name *of)
{
	if (!names->groups)
		return of->host_pid;
	if (!of->group)
		of->group = group_of(names->groups, of);
	return of->group;
}

uint32_t top_names_count(const struct top_names *names, uint32_t number)
{
	uint32_t count = 0;

	for (const struct top_name *n = names->items; n; n = n->hh.next)
		count += (names->groups ? n->group : n->host_pid) == number;
	return count;
}

void top_names_free(struct top_names *names)
{
	struct top_name *n, *next;

	HASH_ITER(hh, names->items, n, next)
	{
		HASH_DEL(names->items, n);
		free(n);
	}
	*names = (struct top_names){ 0 };
}

void top_groups_free(struct top_groups *groups)
{
	struct top_group *g, *next;

	HASH_ITER(hh, groups->items, g, next)
	{
		HASH_DEL(groups->items, g);
		free(g);
	}
}
