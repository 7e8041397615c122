/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec() storms: BPF does not report every program, but keeps live ones in the map `young`
 * (bpf/process.bpf.c). Programs older than half a second are looked at.
 */
#ifndef UNDERSPAN_PROCESS_YOUNG_H
#define UNDERSPAN_PROCESS_YOUNG_H

#include <linux/types.h>
#include <stdint.h>

/* `programs`: number of insertions since the start, counted in BPF. */
void young_start(int young_map_fd, const volatile __u64 *programs);

/* Calls `grown` once for each program old enough. To be called every 10-100 ms. */
void young_tick(uint64_t now_ns, void (*grown)(uint32_t host_pid));

#endif
