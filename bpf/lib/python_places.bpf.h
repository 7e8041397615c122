/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the interpreters of processes lie. bpf/process.bpf.c owns these maps and keeps them right
 * when a process forks, becomes another program or ends; src/trackers/python_places.c fills them.
 * Objects that walk the stacks of threads (pythread.bpf.h) are given their fds.
 */
#ifndef UNDERSPAN_PYTHON_PLACES_BPF_H
#define UNDERSPAN_PYTHON_PLACES_BPF_H

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
