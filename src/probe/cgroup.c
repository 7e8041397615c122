// SPDX-License-Identifier: Apache-2.0
/* Container and pod from cgroup names. See cgroup.h. */
#include "probe/cgroup.h"

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

/* What docker, containerd, cri-o and podman call a container. */
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

/* On Fargate: 32 hex digits of the task, a dash, a decimal number. */
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
 * A pod's uid: a UUID, whose dashes the systemd driver writes as underscores because a dash
 * separates levels there; a static pod has 32 hex digits.
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

/* ---- one component of a path ---- */

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

/* "pod<uid>" of the cgroupfs driver, "kubepods-burstable-pod<uid>.slice" of the systemd one. */
static bool parse_pod(struct word w, char ret[POD_UID_MAX + 1])
{
	static const char *const prefixes[] = { "kubepods-burstable-pod", "kubepods-besteffort-pod",
						"kubepods-pod", "pod" };

	w = trim(w, ".slice");
	/* a node that runs in a container itself (kind) has the levels of its own before them */
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
	/* containerd that takes a systemd name for a path writes "...slice:cri-containerd:<id>" */
	return c == '/' || c == ':';
}

/* Takes the first component off `*path`; false at the end. */
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

/*
 * The innermost container and pod win: of a container within a container (Docker in Docker, kind),
 * it is the inner one that a person knows. A pod without a container yet is one all the same.
 */
static void parse_path(struct word path, struct cgroup_identity *ret)
{
	struct word component;
	bool in_ecs = false;

	while (next_component(&path, &component)) {
		if (parse_pod(component, ret->pod_uid)) {
			ret->container_id[0] = '\0'; /* that of the node, not of the pod */
			continue;
		}
		if (in_ecs && is_fargate_id(component)) {
			memcpy(ret->container_id, component.p, component.n);
			ret->container_id[component.n] = '\0';
			continue;
		}
		parse_container(component, ret->container_id);
		in_ecs |= equals(component, "ecs") || equals(component, "ecs.slice") ||
			  starts_with(component, "ecstasks");
	}
}

/* The path of a line "id:controllers:path"; named hierarchies may have colons in their names. */
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

/* All hierarchies name the same container, but a process may be in it in some only (v1 and v2). */
void cgroup_identity(const char *text, struct cgroup_identity *ret)
{
	*ret = (struct cgroup_identity){};
	while (*text) {
		struct word line = { text, strcspn(text, "\n") }, path;
		struct cgroup_identity found = {};

		text += line.n + (text[line.n] == '\n');
		if (!path_of_line(line, &path))
			continue;
		parse_path(path, &found);
		if (!ret->container_id[0] && (found.container_id[0] || !ret->pod_uid[0]))
			*ret = found;
	}
}
