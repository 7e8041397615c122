// SPDX-License-Identifier: Apache-2.0
/* The limit of the memory cgroup. See memory_limit.h. */
#include "host/memory_limit.h"

#include <fcntl.h>
#include <string.h>

/* Copies the next line of `*text`; false: end. */
static bool next_line(const char **text, char *ret, size_t size)
{
	size_t n = strcspn(*text, "\n");

	if (!**text)
		return false;
	snprintf(ret, size, "%.*s", (int)n, *text);
	*text += n + ((*text)[n] == '\n');
	return true;
}

/* Whether the word is in a comma-separated list. */
static bool is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len) {
		if ((p == list || p[-1] == ',') && (p[len] == ',' || !p[len]))
			return true;
	}
	return false;
}

/* The process's cgroup path: in the version 1 hierarchy "memory" if present, otherwise in
 * version 2. */
static int find_path(const char *cgroups, struct memory_cgroup *ret)
{
	char line[1280];
	int err = -ENOENT;

	while (next_line(&cgroups, line, sizeof(line))) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(++controllers, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		if (*controllers && !is_listed(controllers, "memory"))
			continue;
		snprintf(ret->path, sizeof(ret->path), "%s", path);
		ret->is_v2 = !*controllers;
		err = 0;
		if (!ret->is_v2)
			break;
	}
	return err;
}

/* "36 25 0:31 ROOT MOUNT_POINT OPTIONS ... - TYPE SOURCE SUPER_OPTIONS" */
static bool is_mount_of(char *line, struct memory_cgroup *ret)
{
	char root[256], type[32], options[512], *tail = strstr(line, " - ");

	if (!tail || sscanf(tail, " - %31s %*s %511s", type, options) != 2 ||
	    sscanf(line, "%*s %*s %*s %255s %255s", root, ret->mount) != 2)
		return false;
	if (ret->is_v2 ? strcmp(type, "cgroup2") != 0
		       : strcmp(type, "cgroup") != 0 || !is_listed(options, "memory"))
		return false;
	/* a container often sees only its part of the tree, with the names of the whole tree */
	if (strcmp(root, "/") != 0 && !strncmp(ret->path, root, strlen(root)))
		memmove(ret->path, ret->path + strlen(root), strlen(ret->path + strlen(root)) + 1);
	if (!strcmp(ret->path, "/") || strstr(ret->path, "/.."))
		ret->path[0] = 0;
	return true;
}

int memory_cgroup_find(const char *cgroups, const char *mounts, struct memory_cgroup *ret)
{
	char line[2048];
	int err = find_path(cgroups, ret);

	while (!err && next_line(&mounts, line, sizeof(line))) {
		if (is_mount_of(line, ret))
			return 0;
	}
	return -ENOENT;
}

static uint64_t read_limit(const struct memory_cgroup *cgroup)
{
	AUTO_FCLOSE FILE *f = NULL;
	char name[1400];
	unsigned long long bytes;

	snprintf(name, sizeof(name), "%s%s/%s", cgroup->mount, cgroup->path,
		 cgroup->is_v2 ? "memory.max" : "memory.limit_in_bytes");
	f = fopen(name, "re");
	/* unlimited: "max" (version 2) or the largest number of pages (version 1) */
	if (!f || fscanf(f, "%llu", &bytes) != 1 || bytes >= 1ULL << 60)
		return UINT64_MAX;
	return bytes;
}

static char *read_text(const char *name)
{
	AUTO_FCLOSE FILE *f = fopen(name, "re");
	char *text = NULL;
	size_t size = 0;

	/* NUL as delimiter: reads the whole text */
	if (!f || getdelim(&text, &size, 0, f) < 0) {
		free(text);
		return NULL;
	}
	return text;
}

uint64_t memory_limit(void)
{
	AUTO_FREE char *cgroups = read_text("/proc/self/cgroup");
	AUTO_FREE char *mounts = read_text("/proc/self/mountinfo");
	struct memory_cgroup cgroup;
	uint64_t least = UINT64_MAX;

	if (!cgroups || !mounts || memory_cgroup_find(cgroups, mounts, &cgroup))
		return UINT64_MAX;
	for (;;) {
		uint64_t limit = read_limit(&cgroup);
		char *slash = strrchr(cgroup.path, '/');

		least = limit < least ? limit : least;
		if (!slash)
			return least;
		*slash = 0;
	}
}
