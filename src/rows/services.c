// SPDX-License-Identifier: Apache-2.0
/* Names of processes. See services.h. */
#include "rows/services.h"

#include <string.h>

#include "base/hash.h"
#include "base/exposition.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/container_names.h"
#include "host/proc.h"
#include "process/service_name.h"
#include "rows/identities.h"

enum { MAX_SERVICES = 8192 };
/* The end of a Python is known; the pid of a process of any kind may be reused unseen. */
static const uint64_t KEEP_NS = NSEC_PER_SEC, KEEP_PYTHON_NS = 30 * NSEC_PER_SEC;

struct service {
	uint32_t host_pid;
	uint64_t until_ns;		/* read again after this time */
	char own[SERVICE_NAME_MAX + 1]; /* service of the process at the time of the look-up */
	char service[SERVICE_NAME_MAX + 1];
	struct container_names names;
	char labels[SERVICE_LABELS_MAX];
	UT_hash_handle hh;
};

static struct service *services;
static struct service *last_used; /* rows of a process come in sequence */

static struct service *find(uint32_t host_pid)
{
	struct service *found;

	HASH_FIND(hh, services, &host_pid, sizeof(host_pid), found);
	return found;
}

static void drop(struct service *service)
{
	if (service == last_used)
		last_used = NULL;
	HASH_DEL(services, service);
	free(service);
}

void services_free(void)
{
	struct service *s, *next;

	HASH_ITER(hh, services, s, next)
	drop(s);
	container_names_free();
}

static void add_label(char labels[SERVICE_LABELS_MAX], const char *name, const char *value)
{
	if (value[0])
		exposition_label(labels, SERVICE_LABELS_MAX, name, value);
}

/* The name of the process's program or unit; `comm`: of an ended process's thread. */
static void name_of_program(struct service *s, bool in_container, const char *comm)
{
	char cgroups[16384], unit[CGROUP_UNIT_MAX + 1] = "", main_thread[64];

	if (proc_read(s->host_pid, "comm", main_thread, sizeof(main_thread)) > 0) {
		main_thread[strcspn(main_thread, "\n")] = '\0';
		comm = main_thread;
	}
	/* a unit around a container is the container's runtime */
	if (!in_container && proc_read(s->host_pid, "cgroup", cgroups, sizeof(cgroups)) > 0 &&
	    cgroup_unit(cgroups, unit)[0])
		comm = unit;
	text_printable(s->service, sizeof(s->service), comm[0] ? comm : "unknown");
}

static void describe(struct service *s, uint64_t cgroup_id, const char *comm, uint64_t now_ns)
{
	const struct cgroup_identity *identity = identities_find(s->host_pid, cgroup_id, now_ns);
	const struct container_names *names = container_names_find(identity->container_id, now_ns);

	s->names = names ? *names : (struct container_names){ 0 };
	if (s->own[0])
		memcpy(s->service, s->own, sizeof(s->service));
	else if (names)
		memcpy(s->service, names->container, sizeof(names->container));
	else
		name_of_program(s, identity->container_id[0] != '\0', comm);
	s->labels[0] = '\0';
	add_label(s->labels, "service", s->service);
	add_label(s->labels, "container_id", identity->container_id);
	add_label(s->labels, "pod_uid", identity->pod_uid);
}

static struct service *add(uint32_t host_pid)
{
	static struct service unkept;
	struct service *service;

	if (HASH_COUNT(services) >= MAX_SERVICES)
		drop(services); /* unused for longest */
	service = calloc(1, sizeof(*service));
	if (!service) {
		unkept = (struct service){ .host_pid = host_pid };
		return &unkept;
	}
	service->host_pid = host_pid;
	HASH_ADD(hh, services, host_pid, sizeof(service->host_pid), service);
	return service;
}

/* Keeps the table in the order of use: an entry with a row is never dropped for the next entry. */
static struct service *use(uint32_t host_pid)
{
	struct service *found;

	if (last_used && last_used->host_pid == host_pid)
		return last_used;
	found = find(host_pid);
	if (!found)
		return add(host_pid);
	last_used = found;
	HASH_DEL(services, found);
	HASH_ADD(hh, services, host_pid, sizeof(found->host_pid), found);
	return found;
}

static bool is_new(const struct service *s, const char *own)
{
	return own[0] && strcmp(s->own, own) != 0;
}

/* An ended process keeps the last names. */
static void refresh(struct service *s, const char *own, uint64_t cgroup_id, const char *comm,
		    uint64_t now_ns)
{
	char start[8];

	if (s->service[0] && !is_new(s, own) &&
	    proc_read(s->host_pid, "comm", start, sizeof(start)) <= 0)
		return;
	memcpy(s->own, own, strlen(own) + 1);
	describe(s, cgroup_id, comm, now_ns);
}

struct service_names services_find(struct process *process, uint32_t host_pid, uint64_t cgroup_id,
				   const char *comm, uint64_t now_ns)
{
	const char *own = process ? process->service : "";
	struct service *s = use(host_pid);

	if (process)
		service_name_read(process, now_ns);
	if (now_ns >= s->until_ns || is_new(s, own)) {
		refresh(s, own, cgroup_id, comm, now_ns);
		s->until_ns = now_ns + (process ? KEEP_PYTHON_NS : KEEP_NS);
	}
	return (struct service_names){ .service = s->service,
				       .namespace = s->names.namespace,
				       .pod = s->names.pod,
				       .container = s->names.container,
				       .labels = s->labels };
}

const char *services_labels(uint32_t host_pid, uint64_t cgroup_id, const char *comm,
			    uint64_t now_ns)
{
	return services_find(process_of_event(host_pid, now_ns), host_pid, cgroup_id, comm, now_ns)
		.labels;
}

void services_refresh(uint32_t host_pid)
{
	struct service *known = find(host_pid);

	if (known)
		known->until_ns = 0;
}
