/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The runtime addresses of Python processes. bpf/process.bpf.c owns the maps and updates the
 * entries at fork, exec and exit; src/process/runtime_addresses.c fills the entries. Objects that
 * walk threads (python/threads.bpf.h) receive the maps' fds.
 */
#ifndef UNDERSPAN_PYTHON_PROCESSES_BPF_H
#define UNDERSPAN_PYTHON_PROCESSES_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "python_offsets.h"
#include "python_process.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* host pid */
	__type(value, struct python_process);
} python_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PYTHON_PROCESS_BINARIES);
	__type(key, __u32);
	__type(value, struct python_offsets);
} python_binaries SEC(".maps");

#endif
