/* SPDX-License-Identifier: Apache-2.0 */
/* Software events of the kernel that run a BPF program. */
#ifndef UNDERSPAN_HOST_PERF_EVENT_H
#define UNDERSPAN_HOST_PERF_EVENT_H

#include <bpf/libbpf.h>
#include <stdint.h>

/*
 * Opens the event `config` (PERF_COUNT_SW_*) of a thread on any CPU (cpu -1), or of a CPU for all
 * threads (host_tid -1), and attaches the program to every `period` of it. The link owns the event.
 * `ret_fd` (may be NULL): the event, for a map. NULL with errno; ENODEV: the CPU is offline.
 */
struct bpf_link *perf_event_attach(int host_tid, int cpu, uint64_t config, uint64_t period,
				   struct bpf_program *program, int *ret_fd);

#endif
