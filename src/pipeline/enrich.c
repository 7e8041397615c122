// SPDX-License-Identifier: Apache-2.0
/* From an event's header to the common columns. See enrich.h. */
#include "pipeline/enrich.h"

#include <string.h>
#include <uthash.h>

#include "probe/cgroup.h"
#include "probe/proc.h"
#include "python/names.h"
#include "util.h"

enum { MAX_IDENTITIES = 8192 };

/*
 * By cgroup id where there is a unified hierarchy, which also serves threads that are gone by
 * now; by pid (with the lowest bit of the key's upper half telling the two apart) where not.
 */
struct identity {
	struct {
		uint64_t number;
		uint64_t is_pid;
	} key;
	struct cgroup_identity cgroup;
	uint64_t unknown_until_ns; /* the process was gone: ask again after this; 0: known */
	UT_hash_handle hh;
};

static struct identity *identities;
static char host_name[256];

void enrich_init(const char *host)
{
	if (host)
		snprintf(host_name, sizeof(host_name), "%s", host);
	else if (gethostname(host_name, sizeof(host_name) - 1))
		snprintf(host_name, sizeof(host_name), "unknown");
}

const char *enrich_host(void)
{
	return host_name;
}

static void forget_all(void)
{
	struct identity *i, *next;

	HASH_ITER(hh, identities, i, next)
	{
		HASH_DEL(identities, i);
		free(i);
	}
}

void enrich_done(void)
{
	forget_all();
}

/* Events of a process that is gone come in numbers: each must not cost an open(). */
static void read_identity(struct identity *identity, uint32_t host_pid, uint64_t event_ns)
{
	char text[16384];

	if (proc_read(host_pid, "cgroup", text, sizeof(text)) < 0) {
		identity->unknown_until_ns = event_ns + NSEC_PER_SEC;
		return;
	}
	identity->unknown_until_ns = 0;
	cgroup_identity(text, &identity->cgroup);
}

static const struct cgroup_identity *look_up(uint32_t host_pid, uint64_t cgroup_id,
					     uint64_t event_ns)
{
	static const struct cgroup_identity nothing;
	struct identity wanted = { 0 }, *found;

	/* the root cgroup (1), where cgroup v1 leaves everybody, says nothing */
	wanted.key.is_pid = cgroup_id <= 1;
	wanted.key.number = wanted.key.is_pid ? host_pid : cgroup_id;
	HASH_FIND(hh, identities, &wanted.key, sizeof(wanted.key), found);
	if (found && (!found->unknown_until_ns || event_ns < found->unknown_until_ns))
		return &found->cgroup;
	if (!found) {
		if (HASH_COUNT(identities) >= MAX_IDENTITIES)
			forget_all();
		found = calloc(1, sizeof(*found));
		if (!found)
			return &nothing;
		found->key = wanted.key;
		HASH_ADD(hh, identities, key, sizeof(found->key), found);
	}
	read_identity(found, host_pid, event_ns);
	return &found->cgroup;
}

void enrich_identity(uint32_t host_pid, uint64_t cgroup_id, uint64_t event_ns,
		     const char **ret_container_id, const char **ret_pod_uid)
{
	const struct cgroup_identity *identity = look_up(host_pid, cgroup_id, event_ns);

	*ret_container_id = identity->container_id;
	*ret_pod_uid = identity->pod_uid;
}

void enrich_process_gone(uint32_t host_pid)
{
	struct identity wanted = { .key = { host_pid, 1 } }, *found;

	HASH_FIND(hh, identities, &wanted.key, sizeof(wanted.key), found);
	if (!found)
		return;
	HASH_DEL(identities, found);
	free(found);
}

/* How many events this one stands for: the reciprocal of the probability that it was kept. */
static float weight_of(const struct event_header *header)
{
	uint64_t probability = sampling_probability(header->end_ns - header->start_ns,
						    header->sampling_level);

	return (float)((double)(1ULL << 32) / (double)probability *
		       (double)(1ULL << (header->skip_shift & 31)));
}

void enrich_event(const struct event_header *header, struct row_common *ret)
{
	*ret = (struct row_common){
		.host = host_name,
		.start_ns = header->start_ns,
		.end_ns = header->end_ns,
		.duration_ns = header->end_ns - header->start_ns,
		.pid = header->pid,
		.tid = header->tid,
		.host_pid = header->host_pid,
		.host_tid = header->host_tid,
		.weight = weight_of(header),
	};
	memcpy(ret->comm, header->comm, sizeof(ret->comm));
	enrich_identity(header->host_pid, header->cgroup_id, header->end_ns, &ret->container_id,
			&ret->pod_uid);
	ret->thread_name = names_find(&(struct thread_id){ .host_pid = header->host_pid,
							   .host_tid = header->host_tid,
							   .pid = header->pid,
							   .tid = header->tid,
							   .ident = header->ident },
				      header->end_ns);
}
