// SPDX-License-Identifier: Apache-2.0
/* Container and pod from cgroup names. See cgroup.h. */
#include "host/cgroup.h"

#include <string.h>

/* A part of a path, not NUL-terminated. */
struct word {
	const char *p;
	size_t n;
};

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool starts_with(struct word w, const char *prefix)
{
	return w.n >= strlen(prefix) && memcmp(w.p, prefix, strlen(prefix)) == 0;
}

static struct word skip(struct word w, size_t n)
{
	return (struct word){ w.p + n, w.n - n };
}

/* Without `suffix`, which may be absent. */
static struct word trim(struct word w, const char *suffix)
{
	size_t n = strlen(suffix);

	if (w.n >= n && memcmp(w.p + w.n - n, suffix, n) == 0)
		w.n -= n;
	return w;
}

static bool equals(struct word w, const char *text)
{
	return w.n == strlen(text) && memcmp(w.p, text, w.n) == 0;
}

/* ---- identifiers ---- */

/* Container ids of docker, containerd, cri-o and podman. */
static bool is_container_id(struct word w)
{
	if (w.n != 64)
		return false;
	for (size_t i = 0; i < w.n; i++) {
		if (!is_hex(w.p[i]))
			return false;
	}
	return true;
}

/* Fargate: 32 hex digits of the task, a dash, a decimal number. */
static bool is_fargate_id(struct word w)
{
	if (w.n < 34 || w.n > 44 || w.p[32] != '-')
		return false;
	for (size_t i = 0; i < w.n; i++) {
		if (i < 32 ? !is_hex(w.p[i]) : i > 32 && (w.p[i] < '0' || w.p[i] > '9'))
			return false;
	}
	return true;
}

/*
 * A pod's uid: a UUID (the systemd driver replaces dashes by underscores, since dashes separate
 * levels), or 32 hex digits of a static pod.
 */
static bool parse_pod_uid(struct word w, char ret[POD_UID_MAX + 1])
{
	char uid[POD_UID_MAX + 1];

	if (w.n != 32 && w.n != POD_UID_MAX)
		return false;
	for (size_t i = 0; i < w.n; i++) {
		bool separator = w.n == POD_UID_MAX && (i == 8 || i == 13 || i == 18 || i == 23);

		if (separator ? w.p[i] != '-' && w.p[i] != '_' : !is_hex(w.p[i]))
			return false;
		uid[i] = separator ? '-' : w.p[i];
	}
	memcpy(ret, uid, w.n);
	ret[w.n] = '\0';
	return true;
}

/* ---- path components ---- */

/* "docker-<id>.scope", "cri-containerd-<id>.scope", "crio-<id>", "libpod-<id>.scope", "<id>". */
static bool parse_container(struct word w, char ret[CONTAINER_ID_MAX + 1])
{
	static const char *const prefixes[] = { "docker-", "cri-containerd-", "crio-", "libpod-",
						"nerdctl-" };

	w = trim(w, ".scope");
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		if (starts_with(w, prefixes[i])) {
			w = skip(w, strlen(prefixes[i]));
			break;
		}
	}
	if (!is_container_id(w))
		return false;
	memcpy(ret, w.p, w.n);
	ret[w.n] = '\0';
	return true;
}

/* "pod<uid>" of the cgroupfs driver, "kubepods-burstable-pod<uid>.slice" of the systemd driver. */
static bool parse_pod(struct word w, char ret[POD_UID_MAX + 1])
{
	static const char *const prefixes[] = { "kubepods-burstable-pod", "kubepods-besteffort-pod",
						"kubepods-pod", "pod" };

	w = trim(w, ".slice");
	/* a node inside a container (kind) has its own levels before */
	if (starts_with(w, "kubelet-"))
		w = skip(w, strlen("kubelet-"));
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		if (starts_with(w, prefixes[i]))
			return parse_pod_uid(skip(w, strlen(prefixes[i])), ret);
	}
	return false;
}

/* ---- paths ---- */

static bool is_separator(char c)
{
	/* containerd with a systemd name as path writes "...slice:cri-containerd:<id>" */
	return c == '/' || c == ':';
}

/* Removes the first component of `*path`; false: end. */
static bool next_component(struct word *path, struct word *ret)
{
	while (path->n && is_separator(path->p[0]))
		*path = skip(*path, 1);
	*ret = (struct word){ path->p, 0 };
	while (path->n && !is_separator(path->p[0])) {
		*path = skip(*path, 1);
		ret->n++;
	}
	return ret->n > 0;
}

static bool is_ecs(struct word w)
{
	return equals(w, "ecs") || equals(w, "ecs.slice") || starts_with(w, "ecstasks");
}

/*
 * The innermost container and pod: of nested containers (Docker in Docker, kind) people know the
 * inner container. A pod without a container counts. Returns the number of containers and pods in
 * the path.
 */
static size_t parse_path(struct word path, struct cgroup_identity *ret)
{
	struct word component;
	bool in_ecs = false;
	size_t n = 0;

	while (next_component(&path, &component)) {
		if (parse_pod(component, ret->pod_uid)) {
			ret->container_id[0] = '\0'; /* the node's container, not the pod's */
			n++;
		} else if (in_ecs && is_fargate_id(component)) {
			memcpy(ret->container_id, component.p, component.n);
			ret->container_id[component.n] = '\0';
			n++;
		} else {
			n += parse_container(component, ret->container_id);
			in_ecs |= is_ecs(component);
		}
	}
	return n;
}

/* The path of a line "id:controllers:path"; named hierarchies may contain colons. */
static bool path_of_line(struct word line, struct word *ret)
{
	const char *colon = memchr(line.p, ':', line.n);

	if (colon)
		colon = memmem(colon + 1, line.n - (size_t)(colon + 1 - line.p), ":/", 2);
	if (!colon)
		return false;
	*ret = skip(line, (size_t)(colon + 1 - line.p));
	return true;
}

/*
 * A process may be in its container's cgroup in some hierarchies only: the path with the most
 * containers and pods is the innermost. A container takes precedence over a pod without container.
 */
void cgroup_identity(const char *text, struct cgroup_identity *ret)
{
	size_t most = 0;

	*ret = (struct cgroup_identity){};
	while (*text) {
		struct word line = { text, strcspn(text, "\n") }, path;
		struct cgroup_identity found = {};
		size_t n;

		text += line.n + (text[line.n] == '\n');
		if (!path_of_line(line, &path))
			continue;
		n = 2 * parse_path(path, &found) + (found.container_id[0] != '\0');
		if (n > most) {
			most = n;
			*ret = found;
		}
	}
}

bool cgroup_unified_identity(const char *text, struct cgroup_identity *ret)
{
	bool sole = true;

	*ret = (struct cgroup_identity){};
	while (*text) {
		struct word line = { text, strcspn(text, "\n") }, path;

		text += line.n + (text[line.n] == '\n');
		if (!starts_with(line, "0::"))
			sole = false;
		else if (path_of_line(line, &path))
			parse_path(path, ret);
	}
	return sole;
}

/* ---- tenants ---- */

static bool names_container(struct word w)
{
	struct cgroup_identity ignored;

	return parse_pod(w, ignored.pod_uid) || parse_container(w, ignored.container_id);
}

/* "user-1000.slice": in there the user makes cgroups of any name. */
static bool names_user(struct word w)
{
	static const char prefix[] = "user-";
	size_t digits = 0;

	if (!starts_with(w, prefix))
		return false;
	w = skip(w, strlen(prefix));
	while (digits < w.n && w.p[digits] >= '0' && w.p[digits] <= '9')
		digits++;
	return digits && equals(skip(w, digits), ".slice");
}

static bool ends_with(struct word w, const char *suffix)
{
	return trim(w, suffix).n < w.n;
}

static bool unit_of_path(struct word path, char ret[CGROUP_UNIT_MAX + 1])
{
	struct word component;

	while (next_component(&path, &component)) {
		struct word name = trim(component, ".service");

		if (name.n == component.n || !name.n || starts_with(name, "user@"))
			continue;
		if (name.n > CGROUP_UNIT_MAX)
			name.n = CGROUP_UNIT_MAX;
		memcpy(ret, name.p, name.n);
		ret[name.n] = '\0';
		return true;
	}
	return false;
}

const char *cgroup_unit(const char *text, char ret[CGROUP_UNIT_MAX + 1])
{
	bool found = false;

	ret[0] = '\0';
	while (*text && !found) {
		struct word line = { text, strcspn(text, "\n") }, path;

		text += line.n + (text[line.n] == '\n');
		found = path_of_line(line, &path) && unit_of_path(path, ret);
	}
	return ret;
}

/* The path up to and with what belongs to one tenant, or several users of a service have. */
static struct word tenant_of_path(struct word path, bool *is_one)
{
	struct word rest = path, service = path, component;
	bool in_ecs = false, found_service = false;

	while (next_component(&rest, &component)) {
		struct word upto = { path.p, (size_t)(component.p + component.n - path.p) };

		if (names_user(component) || names_container(component) ||
		    (in_ecs && is_fargate_id(component))) {
			*is_one = true;
			return upto;
		}
		in_ecs |= is_ecs(component);
		if (!found_service &&
		    (ends_with(component, ".service") || ends_with(component, ".scope"))) {
			service = upto;
			found_service = true;
		}
	}
	return service;
}

/* FNV-1a */
static uint64_t hash_more(uint64_t hash, struct word w)
{
	for (size_t i = 0; i < w.n; i++)
		hash = (hash ^ (uint8_t)w.p[i]) * 0x100000001b3;
	return hash;
}

uint32_t cgroup_tenant(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325;
	bool any = false, is_one = false;

	while (*text) {
		struct word line = { text, strcspn(text, "\n") }, path;

		text += line.n + (text[line.n] == '\n');
		if (!path_of_line(line, &path) || path.n <= 1)
			continue;
		any = true;
		hash = hash_more(hash, tenant_of_path(path, &is_one));
	}
	hash ^= hash >> 32;
	return any ? ((uint32_t)hash | 3) ^ (is_one ? 2 : 1) : 0;
}
