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
	bool ran;		     /* since the last search */
	uint32_t fruitless;	     /* consecutive searches without a further GIL */
	uint32_t wait;		     /* ticks until the next search */
	struct gil_job *running_job; /* NULL: no job running */
	UT_hash_handle hh;
};

/* Searches of a process that runs: at each tick first, then less and less often. */
enum { SEARCHES_AT_FIRST = 10, LONGEST_SHIFT = 4 };

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
	if (!memcmp(found, &entry->known, sizeof(*found))) {
		entry->fruitless++;
		return;
	}
	entry->fruitless = 0;
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

/* Takes the marks of the processes that ran. Two processes may share one. */
static void take_marks(void)
{
	static bool taken[GIL_RAN_SLOTS];
	struct gil_process_entry *entry;

	for (entry = entries; entry; entry = entry->hh.next) {
		uint32_t slot = entry->host_pid % GIL_RAN_SLOTS;

		taken[slot] |= __atomic_exchange_n(&skeleton->bss->gil_ran[slot], 0,
						   __ATOMIC_RELAXED);
	}
	for (entry = entries; entry; entry = entry->hh.next)
		entry->ran |= taken[entry->host_pid % GIL_RAN_SLOTS];
	for (entry = entries; entry; entry = entry->hh.next)
		taken[entry->host_pid % GIL_RAN_SLOTS] = false;
}

/*
 * A process that does not run has no new subinterpreters; one that had none for long is searched
 * every 16 ticks. A search costs about 50 us. `by_callsite`: switches may not be watched.
 */
static void search_again(struct gil_process_entry *entry)
{
	uint32_t shift = entry->fruitless > SEARCHES_AT_FIRST ? entry->fruitless - SEARCHES_AT_FIRST
							      : 0;

	if (entry->wait) {
		entry->wait--;
	} else if (entry->ran || entry->by_callsite) {
		entry->ran = false;
		entry->wait = (1U << (shift < LONGEST_SHIFT ? shift : LONGEST_SHIFT)) - 1;
		start_search(entry);
	}
}

void gil_addresses_tick(void)
{
	if (entries)
		take_marks();
	for (struct gil_process_entry *entry = entries; entry; entry = entry->hh.next) {
		if (!entry->known.gils[0])
			start_search(entry);
		else if (entry->offsets.gil_kind == PYTHON_GIL_OF_INTERP)
			search_again(entry);
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
