/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Differences between kernels, each with the commit or the version that made the difference.
 * Callers never test a version.
 */
#ifndef UNDERSPAN_COMPAT_BPF_H
#define UNDERSPAN_COMPAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "lib/syscall.bpf.h"
#include "lib/task.bpf.h"

/*
 * bpf_get_attach_cookie(): 5.15 (7adfc6c9b315). On older kernels each uprobe has a copy of the
 * program, with the cookie as a constant (src/host/uprobe.c).
 */
const volatile __u64 constant_cookie = 0;
const volatile bool has_attach_cookie = false;

static __always_inline __u64 attach_cookie(void *ctx)
{
	return has_attach_cookie ? bpf_get_attach_cookie(ctx) : constant_cookie;
}

/*
 * Offset of a task's user registers from the base of its kernel stack. The registers are at the top
 * of the stack, but the stack's size (KASAN) and the padding above the registers (CONFIG_X86_FRED,
 * 6.9) differ. Kernels with bpf_task_pt_regs() (5.15, dd6e10fbd9fb) give the address for the
 * current task.
 */
static __always_inline __u64 user_regs_offset(void)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		struct task_struct *task = bpf_get_current_task_btf();
		void *typed = (void *)bpf_task_pt_regs(task);
		__u64 regs;

		/* no arithmetic on typed pointers in BPF: copy the address */
		bpf_probe_read_kernel(&regs, sizeof(regs), &typed);
		return regs - (__u64)BPF_CORE_READ(task, stack);
	}
	return 16384 - bpf_core_type_size(struct pt_regs);
}

/*
 * Offset of a TCP socket's retransmission timer, which moved from inet_connection_sock to sock in
 * 7.2.
 */
static __always_inline __u64 tcp_write_timer_offset(void)
{
	if (bpf_core_field_exists(struct sock___7_2, tcp_retransmit_timer))
		return bpf_core_field_offset(struct sock___7_2, tcp_retransmit_timer);
	return bpf_core_field_offset(struct inet_connection_sock___7_1, icsk_retransmit_timer);
}

/* The system call that a thread is in, with its first arguments. */
struct user_call {
	long nr; /* -1: in none (an exception, an interrupt) */
	__u64 arg1, arg2, arg3;
};

/*
 * The user registers of a task. To be read in pieces: the whole struct takes half of the BPF stack.
 */
static __always_inline struct pt_regs *task_user_regs(struct task_struct *task)
{
	return (struct pt_regs *)((char *)BPF_CORE_READ(task, stack) + user_regs_offset());
}

/* `task`: a user thread, as a pointer with a type known to the verifier. */
static __always_inline void task_user_call(struct task_struct *task, struct user_call *ret)
{
	struct pt_regs *regs;
	typeof(SYSCALL_NR_FIELD(regs)) nr = -1;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		regs = (void *)bpf_task_pt_regs(task);
		ret->nr = SYSCALL_NR(regs);
		ret->arg1 = SYSCALL_ARG1(regs);
		ret->arg2 = SYSCALL_ARG2(regs);
		ret->arg3 = SYSCALL_ARG3(regs);
		return;
	}
	regs = task_user_regs(task);
	bpf_core_read(&nr, sizeof(nr), &SYSCALL_NR_FIELD(regs));
	bpf_core_read(&ret->arg1, sizeof(ret->arg1), &SYSCALL_ARG1(regs));
	bpf_core_read(&ret->arg2, sizeof(ret->arg2), &SYSCALL_ARG2(regs));
	bpf_core_read(&ret->arg3, sizeof(ret->arg3), &SYSCALL_ARG3(regs));
	ret->nr = nr;
}

/* Is the file in an epoll instance? `f_ep`: 5.11 (319c15174757). */
static __always_inline bool file_is_epolled(struct file *file)
{
	struct list_head *links;

	if (bpf_core_field_exists(file->f_ep))
		return BPF_CORE_READ(file, f_ep) != NULL;
	links = &((struct file___5_10 *)file)->f_ep_links;
	return BPF_CORE_READ(links, next) != links;
}

/* TASK_* bits; 0: runnable. */
static __always_inline __u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___5_13 *)task)->state;
}

/* The same for a pointer without a type, as current_task() returns before 5.11. */
static __always_inline __u32 untyped_task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return BPF_CORE_READ((struct task_struct___5_13 *)task, state);
}

/* The thread pointer of a thread that is not running: the value of pthread_self(). */
static __always_inline __u64 task_thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task->thread.fsbase;
#elif defined(__TARGET_ARCH_arm64)
	return task->thread.uw.tp_value;
#endif
}

/* The thread pointer of the current thread, saved at its last switch out; constant for a thread. */
static __always_inline __u64 current_thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#elif defined(__TARGET_ARCH_arm64)
	return BPF_CORE_READ(task, thread.uw.tp_value);
#endif
}

/* Total time of a thread in the run queue. */
static __always_inline __u64 run_delay(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info))
		return 0; /* without CONFIG_SCHED_INFO */
	return BPF_CORE_READ(task, sched_info.run_delay);
}

#endif
