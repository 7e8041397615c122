// SPDX-License-Identifier: Apache-2.0
/* The tables of processes. See process_table.h. */
#include "process/process_table.h"

#include "base/clock.h"
#include "process/binaries.h"

/* Events are fetched every 100 ms: no event of an ended process arrives later. */
static const uint64_t ENDED_KEEP_NS = 2 * NSEC_PER_SEC;

static struct process *processes, *ended;
static size_t n_without_room;

struct process *process_find(uint32_t host_pid)
{
	struct process *p;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), p);
	return p;
}

void process_hold(struct process *p)
{
	p->holds++;
}

void process_release(struct process *p)
{
	if (!--p->holds && p->dropped)
		free(p);
}

static void forget_read(struct process *p)
{
	if (p->forget_threads)
		p->forget_threads(p);
	if (p->forget_frames)
		p->forget_frames(p);
}

/* The process is in no table. */
static void drop(struct process *p)
{
	forget_read(p);
	p->dropped = true;
	if (!p->holds)
		free(p);
}

static void drop_ended(struct process *p)
{
	HASH_DEL(ended, p);
	drop(p);
}

static void release_binary(struct process *p)
{
	if (p->file.binary)
		binary_release(p->file.binary);
	p->file.binary = NULL;
}

void process_drop_binary(struct process *p)
{
	release_binary(p);
	forget_read(p);
	p->addresses.wanted = false;
}

void process_end(struct process *p)
{
	bool readable = p->file.binary != NULL;
	struct process *before;

	n_without_room -= p->file.no_room;
	release_binary(p);
	HASH_DEL(processes, p);
	p->ended_ns = clock_monotonic_ns();
	if (!readable) {
		drop(p);
		return;
	}
	HASH_FIND(hh, ended, &p->host_pid, sizeof(p->host_pid), before);
	if (before)
		drop_ended(before);
	HASH_ADD(hh, ended, host_pid, sizeof(p->host_pid), p);
}

struct process *process_add(uint32_t host_pid, const struct binary_file *file,
			    const struct why *why)
{
	struct process *p = process_find(host_pid);

	if (p)
		process_end(p); /* exec() happened, or the exit event was lost */
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->host_pid = host_pid;
	p->file = *file;
	n_without_room += p->file.no_room;
	if (why)
		p->refused = *why;
	if (file->binary) {
		binary_hold(file->binary);
		p->memory = (struct process_memory){
			.host_pid = host_pid,
			.offsets = file->binary->offsets,
			.dev = file->dev,
			.ino = file->ino,
			.load_va = file->binary->image.load_va,
			.runtime_va = file->binary->image.runtime_va,
		};
	}
	HASH_ADD(hh, processes, host_pid, sizeof(p->host_pid), p);
	return p;
}

struct process *process_of_event(uint32_t host_pid, uint64_t event_ns)
{
	struct process *p;

	HASH_FIND(hh, ended, &host_pid, sizeof(host_pid), p);
	if (p && event_ns <= p->ended_ns)
		return p;
	p = process_find(host_pid);
	return p && p->file.binary ? p : NULL;
}

struct process *process_next(const struct process *process)
{
	struct process *next = process ? process->hh.next : processes;

	return next || (process && process->ended_ns) ? next : ended;
}

struct process *process_table(void)
{
	return processes;
}

size_t processes_without_room(void)
{
	return n_without_room;
}

const struct process *processes_find(uint32_t host_pid)
{
	return process_find(host_pid);
}

size_t processes_count(void)
{
	return HASH_COUNT(processes);
}

void process_table_tick(uint64_t now_ns)
{
	struct process *p, *next;

	HASH_ITER(hh, ended, p, next)
	{
		if (now_ns > p->ended_ns + ENDED_KEEP_NS)
			drop_ended(p);
	}
}

void process_table_done(void)
{
	struct process *p, *next;

	HASH_ITER(hh, ended, p, next)
	drop_ended(p);
}
