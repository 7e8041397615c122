// SPDX-License-Identifier: Apache-2.0
/* Publishes interpreter addresses. See runtime_addresses.h. */
#include "process/runtime_addresses.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/log.h"
#include "base/clock.h"
#include "cpython/remote.h"
#include "process/process_job.h"
#include "process/process_table.h"

/* Passed to a reader process and back. */
struct address_search {
	struct process_memory memory;
	struct python_process found;
	bool complete;
};

struct address_job {
	struct process_job job;
	struct address_search search;
};

static int processes_map, binaries_map; /* bpf/python/processes.bpf.h */

#ifdef __x86_64__
/*
 * _PyRuntime.gilstate.autoTSSkey, a Py_tss_t: int _is_initialized, then the pthread key. Absent
 * in 3.15.
 */
static uint32_t tss_key_at(const struct python_offsets *offsets)
{
	static const uint32_t by_minor[] = {
		[8] = 1392, [9] = 584, [10] = 584, [11] = 592, [12] = 1544, [13] = 2160, [14] = 2336
	};

	return offsets->minor < ARRAY_SIZE(by_minor) ? by_minor[offsets->minor] : 0;
}

/*
 * glibc stores the values of a thread's first 32 keys in struct pthread, 16 bytes each: sequence
 * number, value. pthread_self() is the struct's address. Address and offset are internal to glibc
 * and unchanged since 2.2; the value found is verified.
 */
static void find_tss_slot(const struct process_memory *memory, struct python_process *process)
{
	enum { FIRST_KEYS_AT = 0x310, FIRST_KEYS = 32, KEY_SIZE = 16, VALUE_AT = 8 };
	struct remote r = remote_of(memory->host_pid, &memory->offsets, 1);
	uint32_t at = tss_key_at(&memory->offsets), tss[2];

	if (at && !remote_read(&r, memory->learned.runtime + at, tss, sizeof(tss)) && tss[0] == 1 &&
	    tss[1] < FIRST_KEYS)
		process->tstate_slots[0] = FIRST_KEYS_AT + (int32_t)tss[1] * KEY_SIZE + VALUE_AT;
}

/* Thread-local variables are below pthread_self(): x86-64 ABI. */
enum { TLS_BYTES = 8192, TLS_WORDS = TLS_BYTES / 8, TLS_PAGE = 4096, TLS_THREADS = 8 };

/* Counts occurrences of `tstate` below `ident`; hits[k]: k + 1 words below. */
static void count_tls_hits(struct remote *r, uint64_t ident, uint64_t tstate, uint8_t *hits)
{
	uint64_t words[TLS_PAGE / 8], end = ident;

	/* page by page: lower pages may be unmapped */
	while (end > TLS_PAGE && ident - end < TLS_BYTES) {
		uint64_t begin = (end - 1) & ~(uint64_t)(TLS_PAGE - 1);
		size_t n = (end - begin) / 8;

		if (ident % 8 || remote_read(r, begin, words, n * 8))
			return;
		for (size_t i = 0; i < n; i++) {
			uint64_t k = (ident - begin) / 8 - i - 1;

			if (words[i] == tstate && k < TLS_WORDS)
				hits[k]++;
		}
		end = begin;
	}
}

/*
 * 3.15 keeps thread states in two thread-local variables: one valid only while the thread holds the
 * GIL, one always. The offsets are found by searching some threads: the two offsets with most hits.
 */
static void find_tls_slots(const struct process_memory *memory, struct python_process *process)
{
	enum { READS = 2 + TLS_THREADS * (3 + TLS_BYTES / TLS_PAGE + 1) };
	const struct python_offsets *o = &memory->offsets;
	struct remote r = remote_of(memory->host_pid, o, READS);
	uint64_t interp, tstate, ident;
	uint8_t hits[TLS_WORDS] = { 0 };

	if (remote_u64(&r, memory->learned.runtime + o->runtime_interpreters_head, &interp) ||
	    !interp || remote_u64(&r, interp + o->interp_threads_head, &tstate))
		return;
	for (size_t i = 0; i < TLS_THREADS && tstate; i++) {
		if (remote_u64(&r, tstate + o->tstate_thread_id, &ident))
			break;
		count_tls_hits(&r, ident, tstate, hits);
		if (remote_u64(&r, tstate + o->tstate_next, &tstate))
			break;
	}
	for (size_t i = 0; i < PYTHON_PROCESS_SLOTS; i++) {
		size_t best = 0;

		for (size_t k = 1; k < TLS_WORDS; k++)
			best = hits[k] > hits[best] ? k : best;
		if (!hits[best])
			return;
		process->tstate_slots[i] = -8 * ((int32_t)best + 1);
		hits[best] = 0;
	}
}

static void find_tstate_slots(const struct process_memory *memory, struct python_process *process)
{
	find_tss_slot(memory, process);
	if (!process->tstate_slots[0])
		find_tls_slots(memory, process);
}

bool runtime_addresses_walkable(const struct python_binary *binary)
{
	(void)binary;
	return true;
}
#else
bool runtime_addresses_walkable(const struct python_binary *binary)
{
	return binary->offsets.tstate_native_thread_id;
}

static void find_tstate_slots(const struct process_memory *memory, struct python_process *process)
{
	(void)memory;
	(void)process;
}
#endif

static void search(void *argument, struct read_extra *extra)
{
	struct address_search *s = argument;

	(void)extra;
	/* set at once: the interpreter may be initialized before the next look */
	s->found.runtime = process_memory_runtime_address(&s->memory);
	s->complete = process_memory_find_runtime(&s->memory, clock_monotonic_ns());
	if (s->complete)
		find_tstate_slots(&s->memory, &s->found);
}

static void publish(struct process *p, const struct python_process *found)
{
	if (!found->runtime || !memcmp(found, &p->addresses.published, sizeof(*found)))
		return;
	p->addresses.published = *found;
	if (bpf_map_update_elem(processes_map, &p->host_pid, found, BPF_ANY))
		log_warn("process %u: its rows have no Python stacks: %s", p->host_pid,
			 strerror(errno));
}

static void on_searched(struct process_job *job)
{
	const struct address_search *s = &((struct address_job *)job)->search;
	struct process *p = job->process;

	p->addresses.job = NULL;
	if (!process_job_succeeded(job))
		return;
	p->addresses.complete = s->complete;
	publish(p, &s->found);
}

static void start_search(struct process *p)
{
	struct address_job *j = p->addresses.job ? NULL : malloc(sizeof(*j));

	if (!j)
		return;
	*j = (struct address_job){
		.job = { .read = search,
			 .argument = &j->search,
			 .size = sizeof(j->search),
			 .done = on_searched },
		.search.found = { .binary = p->file.binary->id },
	};
	if (process_job_submit(&j->job, p))
		p->addresses.job = &j->job;
}

void runtime_addresses_gone(uint32_t host_pid)
{
	struct process *p = process_find(host_pid);

	if (!p || !p->addresses.wanted)
		return;
	p->addresses.wanted = false;
	/* BPF removes the entry at exit, but it may have been added again since */
	bpf_map_delete_elem(processes_map, &host_pid);
}

void runtime_addresses_appeared(uint32_t host_pid)
{
	struct process *p = process_find(host_pid);
	const struct python_binary *binary = p->file.binary;

	/* BPF may have copied the entry from the parent: kept until updated */
	if (!binary)
		bpf_map_delete_elem(processes_map, &host_pid);
	if (!binary || binary->id >= PYTHON_PROCESS_BINARIES ||
	    bpf_map_update_elem(binaries_map, &binary->id, &binary->offsets, BPF_ANY))
		return;
	p->addresses.wanted = true;
	start_search(p);
}

void runtime_addresses_tick(void)
{
	struct process *p, *next;

	HASH_ITER(hh, process_table(), p, next)
	{
		if (p->addresses.wanted && !p->addresses.complete)
			start_search(p);
	}
}

void runtime_addresses_start(int processes_fd, int binaries_fd)
{
	processes_map = processes_fd;
	binaries_map = binaries_fd;
}
