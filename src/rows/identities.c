// SPDX-License-Identifier: Apache-2.0
/* Container and pod of a process. See identities.h. */
#include "rows/identities.h"

#include <string.h>

#include "base/hash.h"
#include "base/util.h"
#include "host/cgroup.h"
#include "host/proc.h"

enum { MAX_IDENTITIES = 8192 };
static const uint64_t PID_KEEP_NS = NSEC_PER_SEC;

/*
 * Cached by cgroup id if the unified hierarchy is the only one: works for ended threads, too. On
 * hybrid hosts (also version 1 hierarchies) a unified cgroup may hold processes of several
 * containers: cached by process there; by cgroup only for processes that ended before the first
 * look-up, if the cgroup's name identifies the container.
 */
struct identity {
	struct {
		uint64_t number;
		uint64_t is_pid;
	} key;
	struct cgroup_identity cgroup;
	bool sole;	   /* of a cgroup: unified hierarchy only */
	bool ambiguous;	   /* of a cgroup: processes of several containers were seen */
	uint64_t until_ns; /* of a pid: expiry, since pids are reused */
	UT_hash_handle hh;
};

static struct identity *identities;

static void drop_identity(struct identity *identity)
{
	HASH_DEL(identities, identity);
	free(identity);
}

void identities_free(void)
{
	struct identity *i, *next;

	HASH_ITER(hh, identities, i, next)
	drop_identity(i);
}

static struct identity *find_identity(uint64_t number, bool is_pid)
{
	const struct identity wanted = { .key = { number, is_pid } };
	struct identity *found;

	HASH_FIND(hh, identities, &wanted.key, sizeof(wanted.key), found);
	return found;
}

static struct identity *add_identity(uint64_t number, bool is_pid)
{
	struct identity *added = find_identity(number, is_pid);

	if (added)
		return added;
	if (HASH_COUNT(identities) >= MAX_IDENTITIES)
		drop_identity(identities); /* the oldest */
	added = calloc(1, sizeof(*added));
	if (!added)
		return NULL;
	added->key.number = number;
	added->key.is_pid = is_pid;
	HASH_ADD(hh, identities, key, sizeof(added->key), added);
	return added;
}

/* NULL: out of memory, or the cgroup's name has no container. */
static struct identity *learn_cgroup(uint64_t cgroup_id, const char *text,
				     const struct cgroup_identity *own)
{
	struct cgroup_identity named;
	bool sole = cgroup_unified_identity(text, &named);
	bool same = !strcmp(named.container_id, own->container_id) &&
		    !strcmp(named.pod_uid, own->pod_uid);
	struct identity *identity = find_identity(cgroup_id, false);

	if (!identity && (sole || (same && named.container_id[0])))
		identity = add_identity(cgroup_id, false);
	if (!identity)
		return NULL;
	identity->sole = sole;
	identity->ambiguous = !same;
	identity->cgroup = named;
	return identity;
}

static const struct cgroup_identity no_identity;

/* The identity from the process; for an ended process, the cached identity of its cgroup. */
static const struct cgroup_identity *read_identity(uint32_t host_pid, uint64_t cgroup_id,
						   uint64_t event_ns)
{
	/* the root cgroup (1) identifies nothing */
	struct identity *identity, *group = cgroup_id > 1 ? find_identity(cgroup_id, false) : NULL;
	struct cgroup_identity own = { 0 };
	char text[16384];
	bool gone = proc_read(host_pid, "cgroup", text, sizeof(text)) < 0;

	if (!gone)
		cgroup_identity(text, &own);
	if (!gone && cgroup_id > 1)
		group = learn_cgroup(cgroup_id, text, &own);
	if (group && group->sole)
		return &group->cgroup;
	if (gone && group && !group->ambiguous)
		own = group->cgroup;
	identity = find_identity(host_pid, true);
	if (!identity || !gone) {
		identity = add_identity(host_pid, true);
		if (!identity)
			return &no_identity;
		identity->cgroup = own;
	}
	/* an ended process may have many events: avoids an open() per event */
	identity->until_ns = event_ns + PID_KEEP_NS;
	return &identity->cgroup;
}

const struct cgroup_identity *identities_find(uint32_t host_pid, uint64_t cgroup_id,
					      uint64_t event_ns)
{
	const struct identity *found = cgroup_id > 1 ? find_identity(cgroup_id, false) : NULL;

	if (found && found->sole)
		return &found->cgroup;
	found = find_identity(host_pid, true);
	return found && event_ns < found->until_ns ? &found->cgroup
						   : read_identity(host_pid, cgroup_id, event_ns);
}

void identities_refresh(uint32_t host_pid)
{
	struct identity *found = find_identity(host_pid, true);

	if (found) /* its last rows may still follow */
		found->until_ns = 0;
}
