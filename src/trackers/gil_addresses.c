// SPDX-License-Identifier: Apache-2.0
/* Publishes GIL addresses for bpf/gil_wait/wait.bpf.h. See gil_addresses.h. */
#include "trackers/gil_addresses.h"

#include <bpf/bpf.h>
#include <string.h>

#include "events/gil_wait.h"
#include "base/log.h"
#include "host/proc.h"
#include "cpython/gil.h"
#include "workers/reader_process.h"
#include "workers/readers.h"

/* A process whose GILs are searched repeatedly: subinterpreters come and go. */
struct gil_process_entry {
	uint32_t host_pid;
	uint64_t runtime; /* 0: file not mapped so far */
	uint64_t base_va, runtime_va;
	bool by_callsite;
	uint64_t dev, ino; /* the mapped file */
	struct python_offsets offsets;
	struct gil_process known;
	struct gil_job *running_job; /* NULL: no job running */
	UT_hash_handle hh;
};

struct gil_job {
	struct job job;
	struct gil_process_entry of; /* a copy */
	struct gil_process found;
	size_t n;
};

static const struct sched_bpf *skeleton; /* BPF object of the GIL maps */
static struct gil_process_entry *entries;

static struct gil_process_entry *find_entry(uint32_t host_pid)
{
	struct gil_process_entry *entry;

	HASH_FIND(hh, entries, &host_pid, sizeof(host_pid), entry);
	return entry;
}

static void search_in_process(void *argument, struct read_extra *extra)
{
	struct gil_job *j = argument;
	struct gil_process_entry *entry = &j->of;
	uint64_t base, gils[GIL_MAX_PER_PROCESS];

	(void)extra;
	if (!entry->runtime && !proc_file_base(entry->host_pid, entry->dev, entry->ino, &base))
		entry->runtime = base + (entry->runtime_va - entry->base_va);
	if (entry->runtime)
		j->n = python_gil_find(entry->host_pid, entry->runtime, &entry->offsets, gils,
				       GIL_MAX_PER_PROCESS);
	for (size_t k = 0; k < j->n; k++)
		j->found.gils[k] = gils[k];
}

static void run_search(struct job *job)
{
	reader_process_run(search_in_process, job, sizeof(struct gil_job), NULL);
}

static void publish_gils(struct gil_process_entry *entry, const struct gil_process *found)
{
	if (!memcmp(found, &entry->known, sizeof(*found)))
		return;
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.gil_processes), &entry->host_pid, found,
				BPF_ANY))
		log_warn("gil_wait: process %u is not watched: %s", entry->host_pid,
			 strerror(errno));
	else
		entry->known = *found;
}

static void on_searched(struct job *job)
{
	struct gil_job *j = (struct gil_job *)job;
	struct gil_process_entry *entry = find_entry(job->host_pid);

	if (entry && entry->running_job == j) { /* otherwise exec() was called meanwhile */
		entry->running_job = NULL;
		entry->runtime = j->of.runtime;
		if (j->n)
			publish_gils(entry, &j->found);
	}
	free(j);
}

static void start_search(struct gil_process_entry *entry)
{
	struct gil_job *j = entry->running_job ? NULL : malloc(sizeof(*j));

	if (!j)
		return;
	*j = (struct gil_job){
		.job = { .host_pid = entry->host_pid, .run = run_search, .done = on_searched },
		.of = *entry,
		.found = { .tstate_thread_id = entry->offsets.tstate_thread_id,
			   .tstate_native_thread_id = entry->offsets.tstate_native_thread_id,
			   .by_callsite = entry->by_callsite },
	};
	if (readers_submit(&j->job))
		entry->running_job = j;
	else
		free(j);
}

void gil_addresses_gone(uint32_t host_pid)
{
	struct gil_process_entry *entry = find_entry(host_pid);

	if (!entry)
		return;
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.gil_processes), &host_pid);
	HASH_DEL(entries, entry);
	free(entry);
}

void gil_addresses_appeared(const struct sched_bpf *of, const struct process *process,
			    uint64_t base_va, bool by_callsite)
{
	struct gil_process_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return;
	skeleton = of;
	entry->host_pid = process->host_pid;
	entry->base_va = base_va;
	entry->runtime_va = process->file.binary->image.runtime_va;
	entry->by_callsite = by_callsite;
	entry->dev = process->file.dev;
	entry->ino = process->file.ino;
	entry->offsets = process->file.binary->offsets;
	HASH_ADD(hh, entries, host_pid, sizeof(entry->host_pid), entry);
	start_search(entry);
}

void gil_addresses_tick(void)
{
	struct gil_process_entry *entry, *next;

	HASH_ITER(hh, entries, entry, next)
	{
		if (!entry->known.gils[0] || entry->offsets.gil_kind == PYTHON_GIL_OF_INTERP)
			start_search(entry);
	}
}

void gil_addresses_done(void)
{
	struct gil_process_entry *entry, *next;

	HASH_ITER(hh, entries, entry, next)
	{
		HASH_DEL(entries, entry);
		free(entry);
	}
}
