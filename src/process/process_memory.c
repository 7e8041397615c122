// SPDX-License-Identifier: Apache-2.0
/* Addresses of a process's interpreter. See process_memory.h. */
#include "process/process_memory.h"

#include "base/util.h"
#include "host/proc.h"

/* sys.modules is read key by key; large programs have some thousands. */
enum { FIND_READS = 20000 };

/* Schedules a retry: a starting process is not ready for some milliseconds, another never. */
static void retry_later(struct process_learned *learned, uint64_t now_ns)
{
	enum { LONGEST_SHIFT = 10 };

	learned->look_again_ns = now_ns + (10 * NSEC_PER_MSEC << learned->misses);
	if (learned->misses < LONGEST_SHIFT)
		learned->misses++;
}

uint64_t process_memory_runtime_address(struct process_memory *memory)
{
	struct process_learned *learned = &memory->learned;
	uint64_t base;

	if (!learned->runtime_address &&
	    !proc_file_base(memory->host_pid, memory->dev, memory->ino, &base))
		learned->runtime_address = base - memory->load_va + memory->runtime_va;
	return learned->runtime_address;
}

bool process_memory_find_runtime(struct process_memory *memory, uint64_t now_ns)
{
	struct remote r = remote_of(memory->host_pid, &memory->offsets, 64);
	struct process_learned *learned = &memory->learned;
	uint64_t interp;

	if (learned->runtime)
		return true;
	if (now_ns < learned->look_again_ns)
		return false;
	if (process_memory_runtime_address(memory) &&
	    !python_main_interpreter(&r, learned->runtime_address, &interp)) {
		learned->runtime = learned->runtime_address;
		learned->misses = 0;
		return true;
	}
	retry_later(learned, now_ns);
	return false;
}

bool process_memory_find_threads(struct process_memory *memory, uint64_t now_ns)
{
	struct remote r = remote_of(memory->host_pid, &memory->offsets, FIND_READS);
	struct process_learned *learned = &memory->learned;

	if (!process_memory_find_runtime(memory, now_ns))
		return false;
	if (learned->threads.active)
		return true;
	if (now_ns < learned->look_again_ns)
		return false;
	if (!python_threads_find(&r, learned->runtime, &learned->threads)) {
		learned->misses = 0;
		return true;
	}
	retry_later(learned, now_ns);
	return false;
}
