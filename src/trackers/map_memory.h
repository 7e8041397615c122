/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of BPF maps. Entries are allocated on demand if the kernel supports allocation in any
 * context. With a memory limit, map sizes are reduced so that full maps fit into their share: a
 * full map loses counted events, while an OOM-killed agent would lose uncounted events.
 */
#ifndef UNDERSPAN_TRACKERS_MAP_MEMORY_H
#define UNDERSPAN_TRACKERS_MAP_MEMORY_H

#include <bpf/libbpf.h>
#include <stdint.h>

/* To be called before loading: maps allocate entries on demand. */
void map_memory_on_demand(struct bpf_object *object);

/*
 * To be called before loading: reduces the largest maps until all fit into `bytes`. Returns the
 * maximum bytes of a map, for objects opened again.
 */
uint64_t map_memory_fit(struct bpf_object *const *objects, size_t n, uint64_t bytes);

/* Limits each map of the object to `most` bytes; UINT64_MAX: no limit. */
void map_memory_shrink(struct bpf_object *object, uint64_t most);

#endif
