// SPDX-License-Identifier: Apache-2.0
/* Publishes GIL addresses for bpf/gil_wait/wait.bpf.h. See gil_addresses.h. */
#include "trackers/gil_addresses.h"

#include <bpf/bpf.h>
#include <string.h>

#include "events/gil_wait.h"
#include "base/log.h"
#include "cpython/gil.h"
#include "python_gil.h"
#include "process/process_job.h"
#include "process/process_table.h"

/* A process with repeated searches for GILs: subinterpreters come and go. */
struct gil_process_entry {
	uint32_t host_pid;
	bool by_callsite;
	bool of_interpreters; /* each interpreter may have a GIL */
	struct gil_process known;
	bool ran;		     /* since the last search */
	uint32_t fruitless;	     /* consecutive searches without a further GIL */
	uint32_t wait;		     /* ticks until the next search */
	struct gil_job *running_job; /* NULL: no job running */
	UT_hash_handle hh;
};

/* Searches of a running process: at each tick first, then at growing intervals. */
enum { SEARCHES_AT_FIRST = 10, LONGEST_SHIFT = 4 };

/* Passed to a reader process and back. */
struct gil_search {
	struct process_memory memory;
	uint64_t gils[GIL_MAX_PER_PROCESS];
	size_t n;
};

struct gil_job {
	struct process_job job;
	struct gil_search search;
};

static const struct sched_bpf *skeleton; /* BPF object of the GIL maps */
static struct gil_process_entry *entries;

static struct gil_process_entry *find_entry(uint32_t host_pid)
{
	struct gil_process_entry *entry;

	HASH_FIND(hh, entries, &host_pid, sizeof(host_pid), entry);
	return entry;
}

bool gil_addresses_has(uint32_t host_pid, uint64_t address)
{
	const struct gil_process_entry *entry = find_entry(host_pid);

	for (int i = 0; entry && i < GIL_MAX_PER_PROCESS && entry->known.gils[i]; i++) {
		if (address - entry->known.gils[i] < PYTHON_GIL_SIZE)
			return true;
	}
	return false;
}

static void search(void *argument, struct read_extra *extra)
{
	struct gil_search *s = argument;
	uint64_t runtime = process_memory_runtime_address(&s->memory);

	(void)extra;
	if (runtime)
		s->n = python_gil_find(s->memory.host_pid, runtime, &s->memory.offsets, s->gils,
				       GIL_MAX_PER_PROCESS);
}

static void publish_gils(struct gil_process_entry *entry, const struct gil_search *s)
{
	struct gil_process found = {
		.tstate_thread_id = s->memory.offsets.tstate_thread_id,
		.tstate_native_thread_id = s->memory.offsets.tstate_native_thread_id,
		.by_callsite = entry->by_callsite,
	};

	for (size_t k = 0; k < s->n; k++)
		found.gils[k] = s->gils[k];
	if (!memcmp(&found, &entry->known, sizeof(found))) {
		entry->fruitless++;
		return;
	}
	entry->fruitless = 0;
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.gil_processes), &entry->host_pid, &found,
				BPF_ANY))
		log_warn("gil_wait: process %u is not watched: %s", entry->host_pid,
			 strerror(errno));
	else
		entry->known = found;
}

static void on_searched(struct process_job *job)
{
	struct gil_job *j = (struct gil_job *)job;
	struct gil_process_entry *entry = find_entry(job->process->host_pid);

	if (!entry || entry->running_job != j) /* exec() since */
		return;
	entry->running_job = NULL;
	if (process_job_succeeded(job) && j->search.n)
		publish_gils(entry, &j->search);
}

static void start_search(struct gil_process_entry *entry)
{
	struct process *process = process_find(entry->host_pid);
	struct gil_job *j;

	if (!process || !process->file.binary || entry->running_job || !(j = calloc(1, sizeof(*j))))
		return;
	j->job = (struct process_job){ .read = search,
				       .argument = &j->search,
				       .size = sizeof(j->search),
				       .done = on_searched };
	if (process_job_submit(&j->job, process))
		entry->running_job = j;
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
			    bool by_callsite)
{
	struct gil_process_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return;
	skeleton = of;
	entry->host_pid = process->host_pid;
	entry->by_callsite = by_callsite;
	entry->of_interpreters = process->memory.offsets.gil_kind == PYTHON_GIL_OF_INTERP;
	HASH_ADD(hh, entries, host_pid, sizeof(entry->host_pid), entry);
	start_search(entry);
}

/* Takes the marks of the processes that ran. Two processes may share a mark. */
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
 * A process that does not run has no new subinterpreters; a process without any for long is
 * searched every 16 ticks. A search costs about 50 us. `by_callsite`: switches may not be watched.
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
		else if (entry->of_interpreters)
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
