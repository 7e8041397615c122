/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The record of a thread that polls: maps, creation, deletion. */
#ifndef UNDERSPAN_LOOP_STALL_LOOP_BPF_H
#define UNDERSPAN_LOOP_STALL_LOOP_BPF_H

#include "lib/compat.bpf.h"
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "events/loop_stall.h"
#include "python/threads.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOOP_THREADS_MAX);
	__type(key, __u64); /* task_key() */
	__type(value, struct loop_thread);
} loop_threads SEC(".maps");

/* Threads with perf events. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOOP_THREADS_MAX);
	__type(key, __u64); /* task_key() */
	__type(value, struct loop_watch);
} loop_watched SEC(".maps");

/* The perf events of context switches, by loop_watch.slot: read for the time on a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, LOOP_THREADS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} loop_clocks SEC(".maps");

/*
 * Times at which Python processes made epoll descriptors. The number of a closed descriptor is used
 * again: between two loops with one number lies no stall.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* host pid << 32 | fd */
	__type(value, __u64);
} loop_made SEC(".maps");

static const struct loop_thread empty_loop;

volatile __u64 min_duration_ns = 0; /* user space may change the value at any time */

static __always_inline struct loop_thread *loop_find(void)
{
	__u64 key = bpf_get_current_task();

	return bpf_map_lookup_elem(&loop_threads, &key);
}

static __always_inline struct loop_thread *loop_create(void)
{
	__u64 key = bpf_get_current_task();
	struct loop_thread *loop;

	if (bpf_map_update_elem(&loop_threads, &key, &empty_loop, BPF_NOEXIST))
		return NULL;
	loop = bpf_map_lookup_elem(&loop_threads, &key);
	if (loop) {
		loop->host_tid = current_tid();
		loop->host_pid = current_tgid();
	}
	return loop;
}

/* The watch of the current thread, NULL: context switches are not seen. */
static __always_inline const struct loop_watch *loop_watch(void)
{
	__u64 key = bpf_get_current_task();

	return bpf_map_lookup_elem(&loop_watched, &key);
}

static __always_inline __u64 loop_fd_key(__u32 fd)
{
	return (__u64)current_tgid() << 32 | fd;
}

#endif
