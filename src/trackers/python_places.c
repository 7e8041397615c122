// SPDX-License-Identifier: Apache-2.0
/* Where interpreters lie. See python_places.h. */
#include "trackers/python_places.h"

#include <bpf/bpf.h>
#include <string.h>

#include "log.h"
#include "probe/clock.h"
#include "python/remote.h"
#include "python/target.h"
#include "readers.h"
#include "python_process.h"

struct python_place {
	uint32_t host_pid;
	uint32_t binary;
	struct python_process told;
	bool complete;
	struct place_job *looking; /* NULL: no job does */
	UT_hash_handle hh;
};

struct place_job {
	struct job job;
	struct target *target;
	struct python_process found;
	bool complete;
};

static struct python_place *places;
static int processes_map, binaries_map; /* bpf/lib/python_places.bpf.h */

#ifdef __x86_64__
/*
 * _PyRuntime.gilstate.autoTSSkey, a Py_tss_t: int _is_initialized, then the key that pthreads gave.
 * 3.15 has none.
 */
static uint32_t tss_key_at(const struct python_offsets *offsets)
{
	static const uint32_t by_minor[] = {
		[8] = 1392, [9] = 584, [10] = 584, [11] = 592, [12] = 1544, [13] = 2160, [14] = 2336
	};

	return offsets->minor < ARRAY_SIZE(by_minor) ? by_minor[offsets->minor] : 0;
}

/*
 * glibc keeps the values of a thread's first 32 keys in struct pthread, 16 bytes each, the value
 * behind a sequence number. That pthread_self() is the address of that struct, and where in it they
 * stand, is glibc's own business and the same since 2.2; what is found there is checked.
 */
static void find_tss_slot(const struct target *target, struct python_process *process)
{
	enum { FIRST_KEYS_AT = 0x310, FIRST_KEYS = 32, KEY_SIZE = 16, VALUE_AT = 8 };
	struct remote r = remote_of(target->host_pid, &target->offsets, 1);
	uint32_t at = tss_key_at(&target->offsets), tss[2];

	if (at && !remote_read(&r, target->runtime + at, tss, sizeof(tss)) && tss[0] == 1 &&
	    tss[1] < FIRST_KEYS)
		process->tstate_slots[0] = FIRST_KEYS_AT + (int32_t)tss[1] * KEY_SIZE + VALUE_AT;
}

/* Thread-local variables lie below pthread_self(): x86-64's ABI. */
enum { TLS_BYTES = 8192, TLS_WORDS = TLS_BYTES / 8, TLS_PAGE = 4096, TLS_THREADS = 8 };

/* Counts where below `ident` the word `tstate` stands; hits[k]: k + 1 words below. */
static void count_tls_hits(struct remote *r, uint64_t ident, uint64_t tstate, uint8_t *hits)
{
	uint64_t words[TLS_PAGE / 8], end = ident;

	/* page by page, for what is below may not be there */
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
 * 3.15 has its threads' states in thread-local variables: one only while the thread has the GIL,
 * one always. Where they are is found by looking at some threads; the two places with most hits
 * count.
 */
static void find_tls_slots(const struct target *target, struct python_process *process)
{
	enum { READS = 2 + TLS_THREADS * (3 + TLS_BYTES / TLS_PAGE + 1) };
	const struct python_offsets *o = &target->offsets;
	struct remote r = remote_of(target->host_pid, o, READS);
	uint64_t interp, tstate, ident;
	uint8_t hits[TLS_WORDS] = { 0 };

	if (remote_u64(&r, target->runtime + o->runtime_interpreters_head, &interp) || !interp ||
	    remote_u64(&r, interp + o->interp_threads_head, &tstate))
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

static void find_tstate_slots(const struct target *target, struct python_process *process)
{
	find_tss_slot(target, process);
	if (!process->tstate_slots[0])
		find_tls_slots(target, process);
}

bool python_places_walkable(const struct python_binary *binary)
{
	(void)binary;
	return true;
}
#else
bool python_places_walkable(const struct python_binary *binary)
{
	return binary->offsets.tstate_native_thread_id;
}

static void find_tstate_slots(const struct target *target, struct python_process *process)
{
	(void)target;
	(void)process;
}
#endif

static struct python_place *find(uint32_t host_pid)
{
	struct python_place *place;

	HASH_FIND(hh, places, &host_pid, sizeof(host_pid), place);
	return place;
}

static void look(struct job *job)
{
	struct place_job *j = (struct place_job *)job;

	/* at once, for it may be up before it is looked at again */
	j->found.runtime = target_runtime_address(j->target);
	j->complete = target_find_runtime(j->target, clock_monotonic_ns());
	if (j->complete)
		find_tstate_slots(j->target, &j->found);
}

static void tell(struct python_place *place, const struct python_process *process)
{
	if (!process->runtime || !memcmp(process, &place->told, sizeof(*process)))
		return;
	place->told = *process;
	if (bpf_map_update_elem(processes_map, &place->host_pid, process, BPF_ANY))
		log_warn("process %u: its rows have no Python stacks: %s", place->host_pid,
			 strerror(errno));
}

static void looked(struct job *job)
{
	struct place_job *j = (struct place_job *)job;
	struct python_place *place = find(job->host_pid);

	if (place && place->looking == j) { /* else it is another program by now */
		place->looking = NULL;
		place->complete = job->ran && j->complete;
		if (job->ran)
			tell(place, &j->found);
	}
	target_release(j->target);
	free(j);
}

static void start_looking(struct python_place *place, uint64_t now_ns)
{
	struct target *target = target_get(place->host_pid, now_ns);
	struct place_job *j = target && !place->looking ? malloc(sizeof(*j)) : NULL;

	if (!j)
		return;
	*j = (struct place_job){
		.job = { .host_pid = place->host_pid, .run = look, .done = looked },
		.target = target,
		.found.binary = place->binary,
	};
	if (!readers_give(&j->job)) {
		free(j);
		return;
	}
	target_hold(target);
	place->looking = j;
}

static void forget(struct python_place *place)
{
	HASH_DEL(places, place);
	free(place);
}

void python_places_gone(uint32_t host_pid)
{
	struct python_place *place = find(host_pid);

	if (!place)
		return;
	/* the kernel has forgotten it by itself, but may have been told once more since */
	bpf_map_delete_elem(processes_map, &host_pid);
	forget(place);
}

void python_places_appeared(const struct process *process)
{
	const struct python_binary *binary = process->file.binary;
	struct python_place *place = find(process->host_pid);

	if (place) /* its exit got lost */
		forget(place);
	/* what the kernel knows of a Python it may know by its parent: that stays until it is told
	 */
	if (!binary) {
		bpf_map_delete_elem(processes_map, &process->host_pid);
		return;
	}
	if (binary->id >= PYTHON_PROCESS_BINARIES ||
	    bpf_map_update_elem(binaries_map, &binary->id, &binary->offsets, BPF_ANY) ||
	    !(place = calloc(1, sizeof(*place))))
		return;
	place->host_pid = process->host_pid;
	place->binary = binary->id;
	HASH_ADD(hh, places, host_pid, sizeof(place->host_pid), place);
	start_looking(place, clock_monotonic_ns());
}

void python_places_tick(uint64_t now_ns)
{
	struct python_place *place, *next;

	HASH_ITER(hh, places, place, next)
	{
		if (!place->complete)
			start_looking(place, now_ns);
	}
}

void python_places_start(int processes_fd, int binaries_fd)
{
	processes_map = processes_fd;
	binaries_map = binaries_fd;
}

void python_places_done(void)
{
	struct python_place *place, *next;

	HASH_ITER(hh, places, place, next)
	{
		forget(place);
	}
}
