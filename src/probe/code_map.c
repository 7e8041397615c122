// SPDX-License-Identifier: Apache-2.0
/* Where a process has code. See code_map.h. */
#include "probe/code_map.h"

#include <string.h>

enum { MAX_MAPPINGS = 4096, MAX_LINES = 65536, LINE_MAX_BYTES = 4096 + 128 };

/* "55d0-55d8 r-xp 00001000 fd:01 1234   /usr/lib/libc.so.6"; false: no code. */
static bool parse_mapping(char *line, struct mapping *ret)
{
	unsigned long long low, high, offset, ino;
	uint32_t major, minor;
	char permissions[8], *path = strpbrk(line, "/[");
	const char *base;

	if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu", &low, &high, permissions, &offset, &major,
		   &minor, &ino) != 7 ||
	    permissions[2] != 'x')
		return false;
	*ret = (struct mapping){
		.low = low, .high = high, .offset = offset, .place = { major, minor, ino }
	};
	if (!path) { /* made at run time */
		snprintf(ret->name, sizeof(ret->name), "[anonymous]");
		return true;
	}
	path[strcspn(path, "\n")] = 0;
	base = strrchr(path, '/');
	if (base)
		snprintf(ret->name, sizeof(ret->name), "[%.60s]", base + 1);
	else /* [vdso] */
		snprintf(ret->name, sizeof(ret->name), "%.60s", path);
	return true;
}

size_t code_map_read(uint32_t host_pid, struct mapping **ret)
{
	struct mapping mapping, *items = NULL, *grown;
	AUTO_FCLOSE FILE *f = NULL;
	char line[LINE_MAX_BYTES], name[64];
	size_t n = 0;

	snprintf(name, sizeof(name), "/proc/%u/maps", host_pid);
	f = fopen(name, "re");
	for (int i = 0; f && i < MAX_LINES && n < MAX_MAPPINGS && fgets(line, sizeof(line), f);
	     i++) {
		if (!parse_mapping(line, &mapping))
			continue;
		grown = reallocarray(items, n + 1, sizeof(*grown));
		if (!grown)
			break;
		items = grown;
		items[n++] = mapping;
	}
	*ret = items;
	return n;
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
