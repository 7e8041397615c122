// SPDX-License-Identifier: Apache-2.0
/* Publishes interpreter addresses. See runtime_addresses.h. */
#include "process/runtime_addresses.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/log.h"
#include "base/clock.h"
#include "cpython/remote.h"
#include "process/target.h"
#include "workers/reader_process.h"
#include "workers/readers.h"
#include "python_process.h"

struct published_process {
	uint32_t host_pid;
	uint32_t binary;
	struct python_process published;
	bool complete;
	struct address_job *running_job; /* NULL: no job running */
	UT_hash_handle hh;
};

/* Passed to a reader process and back. */
struct address_search {
	struct target_memory memory;
	struct python_process found;
	bool complete;
};

struct address_job {
	struct job job;
	struct target *target;
	struct python_process found;
	bool complete;
};

static struct published_process *published_processes;
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
static void find_tss_slot(const struct target_memory *target, struct python_process *process)
{
	enum { FIRST_KEYS_AT = 0x310, FIRST_KEYS = 32, KEY_SIZE = 16, VALUE_AT = 8 };
	struct remote r = remote_of(target->host_pid, &target->offsets, 1);
	uint32_t at = tss_key_at(&target->offsets), tss[2];

	if (at && !remote_read(&r, target->learned.runtime + at, tss, sizeof(tss)) && tss[0] == 1 &&
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
static void find_tls_slots(const struct target_memory *target, struct python_process *process)
{
	enum { READS = 2 + TLS_THREADS * (3 + TLS_BYTES / TLS_PAGE + 1) };
	const struct python_offsets *o = &target->offsets;
	struct remote r = remote_of(target->host_pid, o, READS);
	uint64_t interp, tstate, ident;
	uint8_t hits[TLS_WORDS] = { 0 };

	if (remote_u64(&r, target->learned.runtime + o->runtime_interpreters_head, &interp) ||
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

static void find_tstate_slots(const struct target_memory *target, struct python_process *process)
{
	find_tss_slot(target, process);
	if (!process->tstate_slots[0])
		find_tls_slots(target, process);
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

static void find_tstate_slots(const struct target_memory *target, struct python_process *process)
{
	(void)target;
	(void)process;
}
#endif

static struct published_process *find_entry(uint32_t host_pid)
{
	struct published_process *entry;

	HASH_FIND(hh, published_processes, &host_pid, sizeof(host_pid), entry);
	return entry;
}

static void search_in_process(void *argument, struct read_extra *extra)
{
	struct address_search *p = argument;

	(void)extra;
	/* set at once: the interpreter may be initialized before the next look */
	p->found.runtime = target_runtime_address(&p->memory);
	p->complete = target_find_runtime(&p->memory, clock_monotonic_ns());
	if (p->complete)
		find_tstate_slots(&p->memory, &p->found);
}

static void run_search(struct job *job)
{
	struct address_job *j = (struct address_job *)job;
	struct address_search p = { .memory = j->target->memory, .found = j->found };

	if (reader_process_run(search_in_process, &p, sizeof(p), NULL))
		return;
	j->target->memory.learned = p.memory.learned;
	j->found = p.found;
	j->complete = p.complete;
}

static void publish(struct published_process *entry, const struct python_process *process)
{
	if (!process->runtime || !memcmp(process, &entry->published, sizeof(*process)))
		return;
	entry->published = *process;
	if (bpf_map_update_elem(processes_map, &entry->host_pid, process, BPF_ANY))
		log_warn("process %u: its rows have no Python stacks: %s", entry->host_pid,
			 strerror(errno));
}

static void on_searched(struct job *job)
{
	struct address_job *j = (struct address_job *)job;
	struct published_process *entry = find_entry(job->host_pid);

	if (entry && entry->running_job == j) { /* otherwise exec() happened meanwhile */
		entry->running_job = NULL;
		entry->complete = job->ran && j->complete;
		if (job->ran)
			publish(entry, &j->found);
	}
	target_release(j->target);
	free(j);
}

static void start_search(struct published_process *entry, uint64_t now_ns)
{
	struct target *target = target_get(entry->host_pid, now_ns);
	struct address_job *j = target && !entry->running_job ? malloc(sizeof(*j)) : NULL;

	if (!j)
		return;
	*j = (struct address_job){
		.job = { .host_pid = entry->host_pid, .run = run_search, .done = on_searched },
		.target = target,
		.found.binary = entry->binary,
	};
	if (!readers_submit(&j->job)) {
		free(j);
		return;
	}
	target_hold(target);
	entry->running_job = j;
}

static void free_entry(struct published_process *entry)
{
	HASH_DEL(published_processes, entry);
	free(entry);
}

void runtime_addresses_gone(uint32_t host_pid)
{
	struct published_process *entry = find_entry(host_pid);

	if (!entry)
		return;
	/* BPF removes the entry at exit, but it may have been added again since */
	bpf_map_delete_elem(processes_map, &host_pid);
	free_entry(entry);
}

void runtime_addresses_appeared(const struct process *process)
{
	const struct python_binary *binary = process->file.binary;
	struct published_process *entry = find_entry(process->host_pid);

	if (entry) /* the exit event was lost */
		free_entry(entry);
	/* BPF may have copied the entry from the parent: kept until updated */
	if (!binary) {
		bpf_map_delete_elem(processes_map, &process->host_pid);
		return;
	}
	if (binary->id >= PYTHON_PROCESS_BINARIES ||
	    bpf_map_update_elem(binaries_map, &binary->id, &binary->offsets, BPF_ANY) ||
	    !(entry = calloc(1, sizeof(*entry))))
		return;
	entry->host_pid = process->host_pid;
	entry->binary = binary->id;
	HASH_ADD(hh, published_processes, host_pid, sizeof(entry->host_pid), entry);
	start_search(entry, clock_monotonic_ns());
}

void runtime_addresses_tick(uint64_t now_ns)
{
	struct published_process *entry, *next;

	HASH_ITER(hh, published_processes, entry, next)
	{
		if (!entry->complete)
			start_search(entry, now_ns);
	}
}

void runtime_addresses_start(int processes_fd, int binaries_fd)
{
	processes_map = processes_fd;
	binaries_map = binaries_fd;
}

void runtime_addresses_done(void)
{
	struct published_process *entry, *next;

	HASH_ITER(hh, published_processes, entry, next)
	{
		free_entry(entry);
	}
}
