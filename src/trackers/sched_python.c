// SPDX-License-Identifier: Apache-2.0
/* Where interpreters lie, for the walks in bpf/sched.bpf.c. See sched_python.h. */
#include "trackers/sched_python.h"

#include <bpf/bpf.h>
#include <string.h>

#include "log.h"
#include "probe/clock.h"
#include "python/remote.h"
#include "python/target.h"
#include "python_process.h"

struct python_place {
	uint32_t host_pid;
	uint32_t binary;
	struct python_process told;
	bool complete;
	UT_hash_handle hh;
};

static struct python_place *places;

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
#endif

/*
 * glibc keeps the values of a thread's first 32 keys in struct pthread, 16 bytes each, the value
 * behind a sequence number. That pthread_self() is the address of that struct, and where in it they
 * stand, is glibc's own business and the same since 2.2; what is found there is checked.
 */
static uint32_t tstate_slot(const struct target *target)
{
#ifdef __x86_64__
	enum { FIRST_KEYS_AT = 0x310, FIRST_KEYS = 32, KEY_SIZE = 16, VALUE_AT = 8 };
	struct remote r = remote_of(target->host_pid, &target->offsets, 1);
	uint32_t at = tss_key_at(&target->offsets), tss[2];

	if (at && !remote_read(&r, target->runtime + at, tss, sizeof(tss)) && tss[0] == 1 &&
	    tss[1] < FIRST_KEYS)
		return FIRST_KEYS_AT + tss[1] * KEY_SIZE + VALUE_AT;
#else
	(void)target;
#endif
	return 0;
}

static void tell(const struct sched_bpf *skeleton, struct python_place *place, uint64_t now_ns)
{
	struct target *target = target_get(place->host_pid, now_ns);
	struct python_process process = { .binary = place->binary };

	if (!target)
		return;
	/* at once, for it may be up before it is looked at again */
	process.runtime = target_runtime_address(target);
	place->complete = target_find_runtime(target, now_ns);
	if (place->complete)
		process.tstate_slot = tstate_slot(target);
	if (!process.runtime || !memcmp(&process, &place->told, sizeof(process)))
		return;
	place->told = process;
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.python_processes), &place->host_pid,
				&process, BPF_ANY))
		log_warn("process %u: its rows have no Python stacks: %s", place->host_pid,
			 strerror(errno));
}

static void forget(const struct sched_bpf *skeleton, struct python_place *place)
{
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.python_processes), &place->host_pid);
	HASH_DEL(places, place);
	free(place);
}

void sched_python_gone(const struct sched_bpf *skeleton, uint32_t host_pid)
{
	struct python_place *place;

	HASH_FIND(hh, places, &host_pid, sizeof(host_pid), place);
	if (place)
		forget(skeleton, place);
}

void sched_python_appeared(const struct sched_bpf *skeleton, const struct process *process)
{
	const struct python_binary *binary = process->binary;
	struct python_place *place;

	sched_python_gone(skeleton, process->host_pid); /* its exit may have got lost */
	if (!binary || binary->id >= PYTHON_PROCESS_BINARIES ||
	    bpf_map_update_elem(bpf_map__fd(skeleton->maps.python_binaries), &binary->id,
				&binary->offsets, BPF_ANY) ||
	    !(place = calloc(1, sizeof(*place))))
		return;
	place->host_pid = process->host_pid;
	place->binary = binary->id;
	HASH_ADD(hh, places, host_pid, sizeof(place->host_pid), place);
	tell(skeleton, place, clock_monotonic_ns());
}

void sched_python_tick(const struct sched_bpf *skeleton, uint64_t now_ns)
{
	struct python_place *place, *next;

	HASH_ITER(hh, places, place, next)
	{
		if (!place->complete)
			tell(skeleton, place, now_ns);
	}
}

void sched_python_done(void)
{
	struct python_place *place, *next;

	HASH_ITER(hh, places, place, next)
	{
		HASH_DEL(places, place);
		free(place);
	}
}
