// SPDX-License-Identifier: Apache-2.0
/* Processes as labels of metrics. See services.h. */
#include "rows/services.h"

#include <string.h>
#include <uthash.h>

#include "base/exposition.h"
#include "host/cgroup.h"
#include "host/proc.h"
#include "rows/enrich.h"

enum { MAX_SERVICES = 4096 };

struct service {
	uint32_t host_pid;
	char labels[SERVICE_LABELS_MAX];
	UT_hash_handle hh;
};

static struct service *services;

static struct service *find(uint32_t host_pid)
{
	struct service *found;

	HASH_FIND(hh, services, &host_pid, sizeof(host_pid), found);
	return found;
}

static void drop(struct service *service)
{
	HASH_DEL(services, service);
	free(service);
}

void services_free(void)
{
	struct service *s, *next;

	HASH_ITER(hh, services, s, next)
	drop(s);
}

static void add_label(char labels[SERVICE_LABELS_MAX], const char *name, const char *value)
{
	if (value[0])
		exposition_label(labels, SERVICE_LABELS_MAX, name, value);
}

/* False: the process is gone; what is known of it is not all. */
static bool describe(char labels[SERVICE_LABELS_MAX], uint32_t host_pid, uint64_t cgroup_id,
		     const char *comm, uint64_t now_ns)
{
	const char *container_id, *pod_uid, *name = comm;
	char cgroups[16384], unit[CGROUP_UNIT_MAX + 1] = "", main_thread[64];
	bool alive = proc_read(host_pid, "comm", main_thread, sizeof(main_thread)) > 0;

	if (alive) {
		main_thread[strcspn(main_thread, "\n")] = '\0';
		name = main_thread;
	}
	enrich_identity(host_pid, cgroup_id, now_ns, &container_id, &pod_uid);
	/* a unit around a container is the container's runtime */
	if (!container_id[0] && proc_read(host_pid, "cgroup", cgroups, sizeof(cgroups)) > 0 &&
	    cgroup_unit(cgroups, unit)[0])
		name = unit;
	labels[0] = '\0';
	add_label(labels, "service", name[0] ? name : "unknown");
	add_label(labels, "container_id", container_id);
	add_label(labels, "pod_uid", pod_uid);
	return alive;
}

static struct service *add(uint32_t host_pid)
{
	struct service *service;

	if (HASH_COUNT(services) >= MAX_SERVICES)
		drop(services); /* the oldest */
	service = calloc(1, sizeof(*service));
	if (!service)
		return NULL;
	service->host_pid = host_pid;
	HASH_ADD(hh, services, host_pid, sizeof(service->host_pid), service);
	return service;
}

void services_forget(uint32_t host_pid)
{
	struct service *known = find(host_pid);

	if (known)
		drop(known);
}

const char *services_labels(uint32_t host_pid, uint64_t cgroup_id, const char *comm,
			    uint64_t now_ns)
{
	static char unknown[SERVICE_LABELS_MAX];
	struct service *known = find(host_pid);

	if (known)
		return known->labels;
	if (!describe(unknown, host_pid, cgroup_id, comm, now_ns))
		return unknown;
	known = add(host_pid);
	if (!known)
		return unknown;
	memcpy(known->labels, unknown, sizeof(known->labels));
	return known->labels;
}
