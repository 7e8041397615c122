// SPDX-License-Identifier: Apache-2.0
/* Python processes whose memory is read. See target.h. */
#include "process/target.h"

#include "base/clock.h"
#include "host/proc.h"
#include "process/processes.h"
#include "base/util.h"

/* Events are fetched every 100 ms: no event of an ended process arrives later. */
static const uint64_t GONE_KEEP_NS = 2 * NSEC_PER_SEC;

/* sys.modules is read key by key; large programs have some thousands. */
enum { FIND_READS = 20000 };

static struct target *targets;

static void drop(struct target *target)
{
	if (target->forget_threads)
		target->forget_threads(target);
	if (target->forget_frames)
		target->forget_frames(target);
	HASH_DEL(targets, target);
	target->dropped = true;
	if (!target->holds)
		free(target);
}

void target_hold(struct target *target)
{
	target->holds++;
}

void target_release(struct target *target)
{
	if (!--target->holds && target->dropped)
		free(target);
}

static struct target *add(uint32_t host_pid)
{
	const struct process *process = processes_find(host_pid);
	struct target *target;

	if (!process || !process->file.binary)
		return NULL;
	target = calloc(1, sizeof(*target));
	if (!target)
		return NULL;
	target->host_pid = host_pid;
	target->memory = (struct target_memory){
		.host_pid = host_pid,
		.offsets = process->file.binary->offsets,
		.dev = process->file.dev,
		.ino = process->file.ino,
		.load_va = process->file.binary->image.load_va,
		.runtime_va = process->file.binary->image.runtime_va,
	};
	HASH_ADD(hh, targets, host_pid, sizeof(target->host_pid), target);
	return target;
}

struct target *target_get(uint32_t host_pid, uint64_t event_ns)
{
	struct target *target;

	HASH_FIND(hh, targets, &host_pid, sizeof(host_pid), target);
	if (target && target->gone_ns && event_ns > target->gone_ns) {
		drop(target);
		target = NULL;
	}
	return target ? target : add(host_pid);
}

/* Schedules a retry: a starting process is not ready for some milliseconds, another never. */
static void retry_later(struct target_memory *target, uint64_t now_ns)
{
	enum { LONGEST_SHIFT = 10 };

	target->learned.look_again_ns = now_ns + (10 * NSEC_PER_MSEC << target->learned.misses);
	if (target->learned.misses < LONGEST_SHIFT)
		target->learned.misses++;
}

uint64_t target_runtime_address(struct target_memory *target)
{
	uint64_t base;

	if (!target->learned.runtime_address &&
	    !proc_file_base(target->host_pid, target->dev, target->ino, &base))
		target->learned.runtime_address = base - target->load_va + target->runtime_va;
	return target->learned.runtime_address;
}

bool target_find_runtime(struct target_memory *target, uint64_t now_ns)
{
	struct remote r = remote_of(target->host_pid, &target->offsets, 64);
	uint64_t interp;

	if (target->learned.runtime)
		return true;
	if (now_ns < target->learned.look_again_ns)
		return false;
	if (target_runtime_address(target) &&
	    !python_main_interpreter(&r, target->learned.runtime_address, &interp)) {
		target->learned.runtime = target->learned.runtime_address;
		target->learned.misses = 0;
		return true;
	}
	retry_later(target, now_ns);
	return false;
}

bool target_find_threads(struct target_memory *target, uint64_t now_ns)
{
	struct remote r = remote_of(target->host_pid, &target->offsets, FIND_READS);

	if (!target_find_runtime(target, now_ns))
		return false;
	if (target->learned.threads.active)
		return true;
	if (now_ns < target->learned.look_again_ns)
		return false;
	if (!python_threads_find(&r, target->learned.runtime, &target->learned.threads)) {
		target->learned.misses = 0;
		return true;
	}
	retry_later(target, now_ns);
	return false;
}

void target_gone(uint32_t host_pid)
{
	struct target *target;

	HASH_FIND(hh, targets, &host_pid, sizeof(host_pid), target);
	if (target && !target->gone_ns)
		target->gone_ns = clock_monotonic_ns();
}

void targets_tick(uint64_t now_ns)
{
	struct target *target, *next;

	HASH_ITER(hh, targets, target, next)
	{
		if (target->gone_ns && now_ns > target->gone_ns + GONE_KEEP_NS)
			drop(target);
	}
}

struct target *targets_all(void)
{
	return targets;
}

void targets_done(void)
{
	struct target *target, *next;

	HASH_ITER(hh, targets, target, next)
	drop(target);
}
