// SPDX-License-Identifier: Apache-2.0
/* The Python processes whose memory is read. See target.h. */
#include "python/target.h"

#include "probe/clock.h"
#include "probe/proc.h"
#include "probe/processes.h"
#include "python/names.h"
#include "python/stack.h"
#include "util.h"

/* Events are fetched every 100 ms: after this long none of a dead process can come. */
static const uint64_t GONE_KEEP_NS = 2 * NSEC_PER_SEC;

/* sys.modules is read key by key; the largest programs have some thousands. */
enum { FIND_READS = 20000 };

static struct target *targets;

static void drop(struct target *target)
{
	names_forget(target);
	stack_forget(target);
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
	target->offsets = process->file.binary->offsets;
	target->dev = process->file.dev;
	target->ino = process->file.ino;
	target->load_va = process->file.binary->image.load_va;
	target->runtime_va = process->file.binary->image.runtime_va;
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

/* A process that is starting has nothing to show for some milliseconds, another one never. */
static void look_later(struct target *target, uint64_t now_ns)
{
	enum { LONGEST_SHIFT = 10 };

	target->look_again_ns = now_ns + (10 * NSEC_PER_MSEC << target->misses);
	if (target->misses < LONGEST_SHIFT)
		target->misses++;
}

uint64_t target_runtime_address(struct target *target)
{
	uint64_t base;

	if (!target->runtime_address &&
	    !proc_file_base(target->host_pid, target->dev, target->ino, &base))
		target->runtime_address = base - target->load_va + target->runtime_va;
	return target->runtime_address;
}

bool target_find_runtime(struct target *target, uint64_t now_ns)
{
	struct remote r = remote_of(target->host_pid, &target->offsets, 64);
	uint64_t interp;

	if (target->runtime)
		return true;
	if (now_ns < target->look_again_ns)
		return false;
	if (target_runtime_address(target) &&
	    !python_main_interpreter(&r, target->runtime_address, &interp)) {
		target->runtime = target->runtime_address;
		target->misses = 0;
		return true;
	}
	look_later(target, now_ns);
	return false;
}

bool target_find_threads(struct target *target, uint64_t now_ns)
{
	struct remote r = remote_of(target->host_pid, &target->offsets, FIND_READS);

	if (!target_find_runtime(target, now_ns))
		return false;
	if (target->threads.active)
		return true;
	if (now_ns < target->look_again_ns)
		return false;
	if (!python_threads_find(&r, target->runtime, &target->threads)) {
		target->misses = 0;
		return true;
	}
	look_later(target, now_ns);
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
		else
			names_trim(target);
	}
	stack_trim(targets);
}

void targets_done(void)
{
	struct target *target, *next;

	HASH_ITER(hh, targets, target, next)
	drop(target);
}
