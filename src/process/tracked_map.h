/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF map `processes` (bpf/process.bpf.c), from user space: published data of each process.
 * Every change also updates `process_slots`, by which hooks skip untracked processes at once.
 */
#ifndef UNDERSPAN_PROCESS_TRACKED_MAP_H
#define UNDERSPAN_PROCESS_TRACKED_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "events/process.h"

int tracked_map_start(int processes_fd, int slots_fd, struct why *why);
void tracked_map_stop(void);

/* 0, or a negative errno; -EEXIST, or the map is full. */
int tracked_map_add(uint32_t host_pid, const struct process_info *info);
/* Adds or replaces. */
int tracked_map_put(uint32_t host_pid, const struct process_info *info);
/* -ENOENT: the process is not in the map. */
int tracked_map_change(uint32_t host_pid, const struct process_info *info);
void tracked_map_delete(uint32_t host_pid);
bool tracked_map_find(uint32_t host_pid, struct process_info *ret);

#endif
