/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What BPF maps may take of memory. Entries are allocated when there is something to keep, where
 * the kernel can do that anywhere; and where the agent has a memory limit, all maps together are
 * made to fit into their share of it when they are full. What finds no room is counted as lost:
 * for an agent that is killed nobody counts.
 */
#ifndef UNDERSPAN_MAP_MEMORY_H
#define UNDERSPAN_MAP_MEMORY_H

#include <bpf/libbpf.h>
#include <stdint.h>

/* Before the object is loaded: its maps take memory as they fill. */
void map_memory_on_demand(struct bpf_object *object);

/*
 * Before they are loaded: makes the largest of their maps as small as it takes for all to fit into
 * so many bytes. Returns what one of them may take at most, for an object that is opened once more.
 */
uint64_t map_memory_fit(struct bpf_object *const *objects, size_t n, uint64_t bytes);

/* Its maps shall take `most` bytes each at most, UINT64_MAX: what they want. */
void map_memory_shrink(struct bpf_object *object, uint64_t most);

#endif
