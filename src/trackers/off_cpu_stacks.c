// SPDX-License-Identifier: Apache-2.0
/* Python stacks of off_cpu's sums. See off_cpu_stacks.h. */
#include "trackers/off_cpu_stacks.h"

#include <bpf/bpf.h>

#include "base/hash.h"
#include "rows/names.h"
#include "rows/stack.h"

/* A sum of the active map whose stack is read; dropped when the map is drained. */
struct read_sum {
	struct off_cpu_profile_key key;
	uint32_t host_pid;
	uint64_t serial; /* struct process's */
	UT_hash_handle hh;
};

static const struct bpf_map *stacks;
static struct read_sum *read_sums;

void off_cpu_stacks_open(const struct bpf_map *of)
{
	stacks = of;
}

void off_cpu_stacks_drained(void)
{
	struct read_sum *sum, *next;

	HASH_ITER(hh, read_sums, sum, next)
	{
		HASH_DEL(read_sums, sum);
		free(sum);
	}
}

void off_cpu_stacks_close(void)
{
	off_cpu_stacks_drained();
	stacks = NULL;
}

struct column_strings off_cpu_stack_of(struct row_context *context, uint64_t key, uint32_t host_pid,
				       uint64_t event_ns)
{
	static struct stack_texts texts; /* one row is made at a time */
	static struct python_stack {
		struct python_stack_info info;
		uint32_t pad;
		struct python_frame frames[PYTHON_STACK_MAX];
	} stack; /* same layout as in bpf/python/frames.bpf.h */

	if (!key || bpf_map_lookup_elem(bpf_map__fd(stacks), &key, &stack))
		return (struct column_strings){ 0 };
	return stack_resolve(context, host_pid, event_ns, stack.frames, &stack.info, &texts);
}

static void find_name(struct row_context *context, const struct event_header *header,
		      uint64_t now_ns)
{
	names_find(context,
		   &(struct thread_id){ .host_pid = header->host_pid,
					.host_tid = header->host_tid,
					.pid = header->pid,
					.tid = header->tid,
					.ident = header->ident },
		   now_ns);
}

/* Without memory the stack is read again a second later. */
static void note_read(const struct off_cpu_profile_key *key, const struct process *process)
{
	struct read_sum *sum = malloc(sizeof(*sum));

	if (!sum)
		return;
	*sum = (struct read_sum){ .key = *key,
				  .host_pid = process->host_pid,
				  .serial = process->serial };
	HASH_ADD(hh, read_sums, key, sizeof(sum->key), sum);
}

/* The process has ended, and its texts are still known. False: also if it is not examined so far.
 */
static bool has_ended(uint32_t host_pid)
{
	const struct process *process = process_of_event(host_pid, 0);

	return !processes_find(host_pid) && process && process->ended_ns;
}

/*
 * Only sums with a stack: the kernel side adds to such a sum on the way to user mode, where an
 * ended process never goes again. To others a process may add after exec(), under the same key.
 */
bool off_cpu_sum_is_complete(const struct bpf_map *map, const void *key, uint64_t now_ns)
{
	const struct off_cpu_profile_key *by = key;
	struct row_context context = { 0 };
	const struct process *process;
	struct off_cpu_profile sum;
	struct read_sum *read;

	if (!by->py_stack)
		return false;
	HASH_FIND(hh, read_sums, by, sizeof(*by), read);
	if (read) {
		process = processes_find(read->host_pid);
		return !process || process->serial != read->serial;
	}
	if (bpf_map_lookup_elem(bpf_map__fd(map), by, &sum))
		return false;
	process = process_of_event(sum.first.header.host_pid, now_ns);
	if (!process)
		return has_ended(sum.first.header.host_pid);
	off_cpu_stack_of(&context, by->py_stack, process->host_pid, now_ns);
	find_name(&context, &sum.first.header, now_ns);
	if (!context.waits_for && !context.unread && !context.gone)
		note_read(by, process);
	return false;
}
