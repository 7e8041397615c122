/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads and processes: ids, the identity in an event's header, and the map of tracked processes.
 */
#ifndef UNDERSPAN_TASK_BPF_H
#define UNDERSPAN_TASK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "events/event.h"
#include "events/process.h"

/* task_struct.flags (include/linux/sched.h) */
enum {
	PF_EXITING = 0x4,
	PF_IO_WORKER = 0x10,
	PF_USER_WORKER = 0x4000,
	PF_KTHREAD = 0x200000,
};

/* Tracked processes by host pid. bpf/process.bpf.c owns the map, all objects share its fd. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct process_info);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PROCESS_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} process_slots SEC(".maps");

/*
 * False: the process is not in `processes`. The first question of every hook that runs for all
 * processes of the host, asked with one load instead of the hash's look-up.
 */
static __always_inline bool process_may_be_known(__u32 tgid)
{
	__u32 slot = tgid & (PROCESS_SLOTS - 1);
	const __u64 *known = bpf_map_lookup_elem(&process_slots, &slot);

	return known && *known;
}

static __always_inline const struct process_info *process_find(__u32 tgid)
{
	return process_may_be_known(tgid) ? bpf_map_lookup_elem(&processes, &tgid) : NULL;
}

/*
 * A task's key in maps. Unlike a thread id the key is stable across exec() in a secondary thread.
 */
static __always_inline __u64 task_key(const struct task_struct *task)
{
	return (__u64)task;
}

static __always_inline __u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline __u32 current_tid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

/* Tracked for signals that need no access to the interpreter; see enum process_flags. */
static __always_inline bool info_is_tracked(const struct process_info *info)
{
	return info && info->flags != PROCESS_REFUSED && info->flags != PROCESS_OWN;
}

static __always_inline bool process_tracked(__u32 tgid)
{
	return info_is_tracked(process_find(tgid));
}

/* The interpreter must not be read. */
static __always_inline bool process_refused(__u32 tgid)
{
	const struct process_info *info = process_find(tgid);

	return info && info->flags & PROCESS_REFUSED;
}

/* The task's entry of its innermost PID namespace, in kernel memory. NULL: unreadable. */
static __always_inline struct upid *task_upid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);

	/* numbers[] grows with the level; PID namespaces nest 32 deep at most (MAX_PID_NS_LEVEL) */
	if (level > 32)
		return NULL;
	return (void *)pid + bpf_core_field_offset(struct pid, numbers) +
	       level * bpf_core_type_size(struct upid);
}

/* The task's id in its innermost PID namespace: os.getpid() and gettid() inside the container. */
static __always_inline __u32 task_ns_id(struct task_struct *task)
{
	return BPF_CORE_READ(task_upid(task), nr);
}

/* bpf_get_current_task_btf(): 5.11 (3ca1032ab7ab) */
static __always_inline bool has_typed_current(void)
{
	return bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf);
}

/* A pointer with a type known to the verifier as a number, for arithmetic and global functions. */
static __always_inline __u64 pointer_as_number(const void *pointer)
{
	__u64 number = (__u64)pointer;

	if (has_typed_current()) {
		/* the difference of two pointers is a number: 30 ns less than a read */
		asm volatile("%0 -= %1" : "+r"(number) : "r"(bpf_get_current_task_btf()));
		return number + bpf_get_current_task();
	}
	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

/* Without a type that the verifier knows before 5.11: read members with BPF_CORE_READ(). */
static __always_inline struct task_struct *current_task(void)
{
	return has_typed_current() ? bpf_get_current_task_btf()
				   : (struct task_struct *)bpf_get_current_task();
}

/*
 * task_ns_id() for a pointer with a type known to the verifier, as current_task() returns: no
 * helper call for threads in the host's own PID namespace.
 */
static __always_inline __u32 typed_task_ns_id(struct task_struct *task)
{
	if (has_typed_current() && task->thread_pid->level == 0)
		return task->pid;
	return task_ns_id(task);
}

/* The id of the task's process in its PID namespace; `task`: as for typed_task_ns_id(). */
static __always_inline __u32 typed_task_ns_tgid(struct task_struct *task)
{
	return has_typed_current() ? typed_task_ns_id(task->group_leader)
				   : task_ns_id(BPF_CORE_READ(task, group_leader));
}

/*
 * The thread's pthread_self(), which is threading.get_ident() in Python. On x86-64 all C libraries
 * let the thread pointer point to the thread's descriptor. On arm64 the descriptor is at an unknown
 * distance below the thread pointer.
 */
static __always_inline __u64 task_ident(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return 0;
#endif
}

/* The ids of the task in its PID namespace, and the namespace's inode: that of /proc/PID/ns/pid. */
static __always_inline void header_set_ns_ids(struct event_header *header, struct task_struct *task)
{
	struct upid *thread = task_upid(task);

	header->pid = task_ns_id(BPF_CORE_READ(task, group_leader));
	header->tid = BPF_CORE_READ(thread, nr);
	header->pidns = BPF_CORE_READ(thread, ns, ns.inum);
}

/* Fills all members but the times, for any thread. */
static __always_inline void header_set_task(struct event_header *header, struct task_struct *task)
{
	header->host_pid = BPF_CORE_READ(task, tgid);
	header->host_tid = BPF_CORE_READ(task, pid);
	header_set_ns_ids(header, task);
	header->ident = task_ident(task);
	header->cgroup_id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	BPF_CORE_READ_INTO(&header->comm, task, comm);
}

/* Fills everything but the times with the current thread. */
static __always_inline void header_set_current(struct event_header *header)
{
	/*
	 * Not current_task(): 5.10 forgets the constant has_typed_current() once it is on the
	 * stack, and would then verify the typed loads of later kernels.
	 */
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	header->host_pid = current_tgid();
	header->host_tid = current_tid();
	header_set_ns_ids(header, task);
	header->ident = task_ident(task);
	header->cgroup_id = bpf_get_current_cgroup_id();
	bpf_get_current_comm(header->comm, sizeof(header->comm));
}

#endif
