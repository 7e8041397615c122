/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python stacks of off_cpu's sums, from the map off_cpu_stacks. A stack is read while its process
 * lives; the sums of a process that ends are handed over before its texts are forgotten.
 */
#ifndef UNDERSPAN_TRACKERS_OFF_CPU_STACKS_H
#define UNDERSPAN_TRACKERS_OFF_CPU_STACKS_H

#include "events/off_cpu.h"
#include "rows/column.h"
#include "rows/row_context.h"
#include "trackers/sched.h"

void off_cpu_stacks_open(const struct bpf_map *stacks);
void off_cpu_stacks_close(void);

/* The texts, valid until the next call; `key` 0: none. The stack is of the process at `event_ns`.
 */
struct column_strings off_cpu_stack_of(struct row_context *context, uint64_t key, uint32_t host_pid,
				       uint64_t event_ns);

/* See sched_sums.is_complete and .drained. */
bool off_cpu_sum_is_complete(const struct bpf_map *map, const void *key, uint64_t now_ns);
void off_cpu_stacks_drained(void);

#endif
