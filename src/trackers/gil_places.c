// SPDX-License-Identifier: Apache-2.0
/* Where the GILs of each process are, for bpf/lib/gil_wait.bpf.h. See gil_places.h. */
#include "trackers/gil_places.h"

#include <bpf/bpf.h>
#include <string.h>

#include "events/gil_wait.h"
#include "log.h"
#include "probe/proc.h"
#include "probe/python_gil.h"
#include "readers.h"

/* An interpreter whose GILs are looked for again and again: subinterpreters come and go. */
struct interpreter {
	uint32_t host_pid;
	uint64_t runtime; /* 0: the file is not mapped yet */
	uint64_t base_va, runtime_va;
	bool by_callsite;
	uint64_t dev, ino; /* of the file, as the process has it */
	struct python_offsets offsets;
	struct gil_process known;
	struct gil_job *looking; /* NULL: no job does */
	UT_hash_handle hh;
};

struct gil_job {
	struct job job;
	struct interpreter of; /* a copy */
	struct gil_process found;
	size_t n;
};

static const struct sched_bpf *skeleton; /* of the interpreters */
static struct interpreter *interpreters;

static struct interpreter *find_interpreter(uint32_t host_pid)
{
	struct interpreter *i;

	HASH_FIND(hh, interpreters, &host_pid, sizeof(host_pid), i);
	return i;
}

static void look_for_gils(struct job *job)
{
	struct gil_job *j = (struct gil_job *)job;
	struct interpreter *i = &j->of;
	uint64_t base, gils[GIL_MAX_PER_PROCESS];

	if (!i->runtime && !proc_file_base(i->host_pid, i->dev, i->ino, &base))
		i->runtime = base + (i->runtime_va - i->base_va);
	if (i->runtime)
		j->n = python_gil_find(i->host_pid, i->runtime, &i->offsets, gils,
				       GIL_MAX_PER_PROCESS);
	for (size_t k = 0; k < j->n; k++)
		j->found.gils[k] = gils[k];
}

static void watch_gils(struct interpreter *i, const struct gil_process *found)
{
	if (!memcmp(found, &i->known, sizeof(*found)))
		return;
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.gil_processes), &i->host_pid, found,
				BPF_ANY))
		log_warn("gil_wait: process %u is not watched: %s", i->host_pid, strerror(errno));
	else
		i->known = *found;
}

static void looked_for_gils(struct job *job)
{
	struct gil_job *j = (struct gil_job *)job;
	struct interpreter *i = find_interpreter(job->host_pid);

	if (i && i->looking == j) { /* else it is another program by now */
		i->looking = NULL;
		i->runtime = j->of.runtime;
		if (j->n)
			watch_gils(i, &j->found);
	}
	free(j);
}

static void start_looking_for_gils(struct interpreter *i)
{
	struct gil_job *j = i->looking ? NULL : malloc(sizeof(*j));

	if (!j)
		return;
	*j = (struct gil_job){
		.job = { .host_pid = i->host_pid, .run = look_for_gils, .done = looked_for_gils },
		.of = *i,
		.found = { .tstate_thread_id = i->offsets.tstate_thread_id,
			   .tstate_native_thread_id = i->offsets.tstate_native_thread_id,
			   .by_callsite = i->by_callsite },
	};
	if (readers_give(&j->job))
		i->looking = j;
	else
		free(j);
}

void gil_places_gone(uint32_t host_pid)
{
	struct interpreter *i = find_interpreter(host_pid);

	if (!i)
		return;
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.gil_processes), &host_pid);
	HASH_DEL(interpreters, i);
	free(i);
}

void gil_places_appeared(const struct sched_bpf *of, const struct process *process,
			 uint64_t base_va, bool by_callsite)
{
	struct interpreter *i = calloc(1, sizeof(*i));

	if (!i)
		return;
	skeleton = of;
	i->host_pid = process->host_pid;
	i->base_va = base_va;
	i->runtime_va = process->file.binary->image.runtime_va;
	i->by_callsite = by_callsite;
	i->dev = process->file.dev;
	i->ino = process->file.ino;
	i->offsets = process->file.binary->offsets;
	HASH_ADD(hh, interpreters, host_pid, sizeof(i->host_pid), i);
	start_looking_for_gils(i);
}

void gil_places_tick(void)
{
	struct interpreter *i, *next;

	HASH_ITER(hh, interpreters, i, next)
	{
		if (!i->known.gils[0] || i->offsets.gil_kind == PYTHON_GIL_OF_INTERP)
			start_looking_for_gils(i);
	}
}

void gil_places_done(void)
{
	struct interpreter *i, *next;

	HASH_ITER(hh, interpreters, i, next)
	{
		HASH_DEL(interpreters, i);
		free(i);
	}
}
