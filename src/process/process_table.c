// SPDX-License-Identifier: Apache-2.0
/* The table of processes. See process_table.h. */
#include "process/process_table.h"

#include "process/binaries.h"

static struct process *processes;
static size_t n_without_room;

struct process *process_find(uint32_t host_pid)
{
	struct process *p;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), p);
	return p;
}

void process_drop_binary(struct process *p)
{
	if (p->file.binary)
		binary_release(p->file.binary);
	p->file.binary = NULL;
}

void process_forget(struct process *p)
{
	n_without_room -= p->file.no_room;
	process_drop_binary(p);
	HASH_DEL(processes, p);
	free(p);
}

struct process *process_add(uint32_t host_pid, const struct binary_file *file,
			    const struct why *why)
{
	struct process *p = process_find(host_pid);

	if (p)
		process_forget(p); /* exec() happened, or the exit event was lost */
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->host_pid = host_pid;
	p->file = *file;
	n_without_room += p->file.no_room;
	if (why)
		p->refused = *why;
	if (file->binary)
		binary_hold(file->binary);
	HASH_ADD(hh, processes, host_pid, sizeof(p->host_pid), p);
	return p;
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
