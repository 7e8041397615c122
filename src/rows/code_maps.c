// SPDX-License-Identifier: Apache-2.0
/* Executable mappings of processes, cached. See code_maps.h. */
#include "rows/code_maps.h"

#include "base/hash.h"
#include "base/clock.h"
#include "workers/reader_process.h"
#include "workers/readers.h"

enum { MAX_PROCESSES = 512 };
/* Sums and events of a process arrive after its end. */
static const uint64_t KEEP_GONE_NS = 30 * NSEC_PER_SEC;

struct maps_job {
	struct job job;
	struct mapping *items;
	size_t n;
};

static struct process_maps *processes;
static struct process_maps *retired; /* unused, but rows may still borrow the names */

struct process_maps *code_maps_find(uint32_t host_pid)
{
	struct process_maps *maps;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), maps);
	return maps;
}

static void retire_maps(struct process_maps *maps)
{
	maps->next_retired = retired;
	retired = maps;
}

void code_maps_free_retired(void)
{
	struct process_maps *next;

	for (struct process_maps *maps = retired; maps; maps = next) {
		next = maps->next_retired;
		free(maps->items);
		free(maps);
	}
	retired = NULL;
}

static void forget_maps(struct process_maps *maps)
{
	HASH_DEL(processes, maps);
	retire_maps(maps);
}

/* Replaces the old mappings by the new. False: out of memory, nothing changed. */
static bool replace_items(struct process_maps *maps, struct mapping *items, size_t n)
{
	struct process_maps *old = maps->items ? calloc(1, sizeof(*old)) : NULL;

	if (maps->items && !old)
		return false;
	if (old) {
		old->items = maps->items;
		retire_maps(old);
	}
	maps->items = items;
	maps->n = n;
	return true;
}

void code_maps_forget_all(void)
{
	struct process_maps *maps, *next;

	HASH_ITER(hh, processes, maps, next)
	forget_maps(maps);
}

static void forget_gone(uint64_t now_ns)
{
	struct process_maps *maps, *next;

	HASH_ITER(hh, processes, maps, next)
	{
		if (maps->gone_ns && now_ns - maps->gone_ns > KEEP_GONE_NS)
			forget_maps(maps);
	}
}

static void read_maps_in_process(void *argument, struct read_extra *extra)
{
	const uint32_t *host_pid = argument;
	struct mapping *items;

	extra->data_size = code_map_read(*host_pid, &items) * sizeof(*items);
	extra->data = items;
}

static void read_maps(struct job *job)
{
	struct maps_job *j = (struct maps_job *)job;
	struct read_extra extra = { .fd = -1 };
	uint32_t host_pid = job->host_pid;

	if (reader_process_run(read_maps_in_process, &host_pid, sizeof(host_pid), &extra))
		return;
	j->items = extra.data;
	j->n = extra.data_size / sizeof(*j->items);
}

/* Known mappings stay if the process has ended. */
static void maps_are_read(struct job *job)
{
	struct maps_job *j = (struct maps_job *)job;
	struct process_maps *maps = code_maps_find(job->host_pid);

	if (maps)
		maps->being_read = false;
	if (maps && j->n && replace_items(maps, j->items, j->n))
		maps->gone_ns = 0;
	else
		free(j->items);
	free(j);
}

void code_maps_read(struct process_maps *maps, uint64_t now_ns)
{
	struct maps_job *j = maps->being_read ? NULL : calloc(1, sizeof(*j));

	if (!j)
		return;
	j->job =
		(struct job){ .host_pid = maps->host_pid, .run = read_maps, .done = maps_are_read };
	maps->being_read = readers_submit(&j->job);
	if (maps->being_read)
		maps->read_ns = now_ns;
	else
		free(j);
}

struct process_maps *code_maps_of(uint32_t host_pid)
{
	struct process_maps *maps = code_maps_find(host_pid);
	uint64_t now = clock_monotonic_ns();

	if (maps) {
		/* exec() may have happened since the read */
		if (maps->gone_ns &&
		    (maps->read_ns <= maps->gone_ns || now - maps->read_ns > CODE_MAPS_REREAD_NS))
			code_maps_read(maps, now);
		return maps;
	}
	if (HASH_COUNT(processes) >= MAX_PROCESSES)
		code_maps_forget_all();
	maps = calloc(1, sizeof(*maps));
	if (!maps)
		return NULL;
	maps->host_pid = host_pid;
	HASH_ADD(hh, processes, host_pid, sizeof(maps->host_pid), maps);
	code_maps_read(maps, now);
	return maps;
}

void code_maps_process_gone(uint32_t host_pid)
{
	uint64_t now = clock_monotonic_ns();
	struct process_maps *maps;

	forget_gone(now);
	maps = code_maps_find(host_pid);
	if (maps)
		maps->gone_ns = now;
}
