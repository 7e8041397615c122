// SPDX-License-Identifier: Apache-2.0
/* Names of Kubernetes containers. See container_names.h. */
#include "host/container_names.h"

#include <dirent.h>
#include <string.h>

#include "base/hash.h"
#include "base/util.h"

static const char directory[] = "/var/log/containers";
static const uint64_t READ_AGAIN_NS = 2 * NSEC_PER_SEC;
/* A node has at most some hundred containers, and files of ended containers for a while. */
enum { MAX_FILES = 65536, MAX_CONTAINERS = 8192 };

struct known_container {
	char id[CONTAINER_ID_MAX + 1];
	struct container_names names;
	UT_hash_handle hh;
};

static struct known_container *containers;
static uint64_t read_ns; /* time of the last read; 0: never */

/* Copies up to `end`, without `end`; returns the text behind. NULL: not a name. */
static const char *take(const char *from, const char *end, char *to, size_t max)
{
	size_t n = end ? (size_t)(end - from) : 0;

	if (!n || n > max)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		char c = from[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'))
			return NULL;
		to[i] = c;
	}
	to[n] = '\0';
	return end + 1;
}

static bool is_id(const char *id)
{
	return strlen(id) == CONTAINER_ID_MAX && strspn(id, "0123456789abcdef") == CONTAINER_ID_MAX;
}

bool container_names_parse(const char *file_name, struct container_names *ret,
			   char ret_id[CONTAINER_ID_MAX + 1])
{
	static const char suffix[] = ".log";
	size_t len = strlen(file_name), tail = CONTAINER_ID_MAX + sizeof(suffix) - 1;
	const char *at = file_name;

	if (len <= tail + 1 || strcmp(file_name + len - (sizeof(suffix) - 1), suffix))
		return false;
	memcpy(ret_id, file_name + len - tail, CONTAINER_ID_MAX);
	ret_id[CONTAINER_ID_MAX] = '\0';
	if (!is_id(ret_id) || file_name[len - tail - 1] != '-')
		return false;
	at = take(at, strchr(at, '_'), ret->pod, K8S_POD_MAX);
	at = at ? take(at, strchr(at, '_'), ret->namespace, K8S_LABEL_MAX) : NULL;
	return at && at < file_name + len - tail &&
	       take(at, file_name + len - tail - 1, ret->container, K8S_LABEL_MAX);
}

static struct known_container *find(const char *id)
{
	struct known_container *found;

	HASH_FIND_STR(containers, id, found);
	return found;
}

static void drop(struct known_container *container)
{
	HASH_DEL(containers, container);
	free(container);
}

static void add(const struct known_container *container)
{
	struct known_container *added;

	if (find(container->id)) /* a container keeps the same names */
		return;
	if (HASH_COUNT(containers) >= MAX_CONTAINERS)
		drop(containers); /* the oldest */
	added = malloc(sizeof(*added));
	if (!added)
		return;
	*added = *container;
	HASH_ADD_STR(containers, id, added);
}

static void read_directory(void)
{
	DIR *dir = opendir(directory);
	struct known_container found = { 0 };
	struct dirent *entry;

	if (!dir)
		return;
	for (size_t i = 0; i < MAX_FILES && (entry = readdir(dir)); i++) {
		if (container_names_parse(entry->d_name, &found.names, found.id))
			add(&found);
	}
	closedir(dir);
}

const struct container_names *container_names_find(const char *container_id, uint64_t now_ns)
{
	struct known_container *found = find(container_id);

	if (!found && container_id[0] && (!read_ns || now_ns - read_ns >= READ_AGAIN_NS)) {
		read_ns = now_ns;
		read_directory();
		found = find(container_id);
	}
	return found ? &found->names : NULL;
}

void container_names_free(void)
{
	struct known_container *c, *next;

	HASH_ITER(hh, containers, c, next)
	drop(c);
	read_ns = 0;
}
