// SPDX-License-Identifier: Apache-2.0
/* From an event's header to the common columns. See enrich.h. */
#include "rows/enrich.h"

#include <string.h>

#include "process/process_table.h"
#include "rows/identities.h"
#include "rows/names.h"
#include "rows/services.h"
#include "base/util.h"

static char host_name[256], boot[40];

static void read_boot_id(void)
{
	AUTO_FCLOSE FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!file || fscanf(file, "%39[0-9a-f-]", boot) != 1)
		boot[0] = '\0';
}

void enrich_init(const char *host, const char *boot_id)
{
	if (boot_id)
		snprintf(boot, sizeof(boot), "%s", boot_id);
	else
		read_boot_id();
	if (host)
		snprintf(host_name, sizeof(host_name), "%s", host);
	else if (gethostname(host_name, sizeof(host_name) - 1))
		snprintf(host_name, sizeof(host_name), "unknown");
}

const char *enrich_host(void)
{
	return host_name;
}

/* Number of events represented: reciprocal of the sampling probability. */
static float weight_of(const struct event_header *header)
{
	uint64_t probability = sampling_probability(header->end_ns - header->start_ns,
						    header->sampling_level);

	return (float)((double)(1ULL << 32) / (double)probability *
		       (double)(1ULL << (header->skip_shift & 31)));
}

static void set_names(struct row_context *context, const struct event_header *header,
		      struct row_common *ret)
{
	/* a refused Python has a service, too */
	struct process *python = row_process(context, header->host_pid, header->end_ns)
					 ?: process_find(header->host_pid);
	char comm[EVENT_COMM_LEN + 1] = "";
	struct service_names names;

	if (!header->host_pid)
		return;
	memcpy(comm, header->comm, EVENT_COMM_LEN);
	names = services_find(python, header->host_pid, header->cgroup_id, comm, header->end_ns);

	if (python && python->service_state == SERVICE_BEING_READ)
		row_waits_for(context, header->host_pid);
	ret->service = names.service;
	ret->namespace = names.namespace;
	ret->pod = names.pod;
	ret->container = names.container;
}

static const char *thread_name(struct row_context *context, const struct event_header *header,
			       uint64_t event_ns)
{
	struct thread_id thread = { .host_pid = header->host_pid,
				    .host_tid = header->host_tid,
				    .pid = header->pid,
				    .tid = header->tid,
				    .ident = header->ident };

	return names_find(context, &thread, event_ns);
}

void enrich_event(struct row_context *context, const struct event_header *header,
		  struct row_common *ret)
{
	const struct cgroup_identity *identity;

	*ret = (struct row_common){
		.host = host_name,
		.boot_id = boot,
		.pidns = header->pidns,
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
	identity = identities_find(header->host_pid, header->cgroup_id, header->end_ns);
	ret->container_id = identity->container_id;
	ret->pod_uid = identity->pod_uid;
	set_names(context, header, ret);
	ret->thread_name = thread_name(context, header, header->end_ns);
}

uint64_t enrich_sum_last_ns(struct row_context *context, const struct event_header *header)
{
	const struct process *process = row_process(context, header->host_pid, header->end_ns);

	if (process)
		return header->end_ns;
	process = row_process(context, header->host_pid, header->start_ns);
	return process && process->ended_ns < header->end_ns ? process->ended_ns : header->end_ns;
}

void enrich_sum(struct row_context *context, const struct event_header *header,
		struct row_common *ret)
{
	struct event_header begin = *header;
	bool unnamed = context->unnamed;

	begin.end_ns = begin.start_ns;
	enrich_event(context, &begin, ret);
	ret->end_ns = header->end_ns;
	ret->duration_ns = header->end_ns - header->start_ns;
	if (*ret->thread_name)
		return;
	context->unnamed = unnamed;
	ret->thread_name = thread_name(context, header, enrich_sum_last_ns(context, header));
}
