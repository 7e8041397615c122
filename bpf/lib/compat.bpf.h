/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every difference between kernels that the probes care about, each with the commit or version
 * that made it. Callers never see a version.
 */
#ifndef UNDERSPAN_COMPAT_BPF_H
#define UNDERSPAN_COMPAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "syscall.bpf.h"
#include "underspan.bpf.h"

/*
 * bpf_get_attach_cookie(): 5.15 (7adfc6c9b315). Before, each probe has a copy of the program with
 * its number as a constant (src/probe/uprobe.c).
 */
const volatile __u64 constant_cookie = 0;
const volatile bool has_attach_cookie = false;

static __always_inline __u64 attach_cookie(void *ctx)
{
	return has_attach_cookie ? bpf_get_attach_cookie(ctx) : constant_cookie;
}

/*
 * Where a task's user registers lie, counted from the base of its kernel stack. They are at the
 * stack's top, but its size (KASAN) and the pad above them (CONFIG_X86_FRED, 6.9) differ; where the
 * kernel can say it (bpf_task_pt_regs(), 5.15, dd6e10fbd9fb) it is asked about the current task.
 */
static __always_inline __u64 user_regs_offset(void)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		struct task_struct *task = bpf_get_current_task_btf();
		void *typed = (void *)bpf_task_pt_regs(task);
		__u64 regs;

		/* the verifier allows no arithmetic on a typed pointer: copy it into a number */
		bpf_probe_read_kernel(&regs, sizeof(regs), &typed);
		return regs - (__u64)BPF_CORE_READ(task, stack);
	}
	return 16384 - bpf_core_type_size(struct pt_regs);
}

/*
 * A TCP socket's timer for everything that waits for an ACK: it moved from inet_connection_sock to
 * sock in 7.2.
 */
static __always_inline __u64 tcp_write_timer_offset(void)
{
	if (bpf_core_field_exists(struct sock___7_2, tcp_retransmit_timer))
		return bpf_core_field_offset(struct sock___7_2, tcp_retransmit_timer);
	return bpf_core_field_offset(struct inet_connection_sock___7_1, icsk_retransmit_timer);
}

/* What a thread asked of the kernel: the call it is in, with its first arguments. */
struct user_call {
	long nr; /* -1: in none (an exception, an interrupt) */
	__u64 arg1, arg2, arg3;
};

/* A thread's user registers: to be read one by one, all together are half of a program's stack. */
static __always_inline struct pt_regs *task_user_regs(struct task_struct *task)
{
	return (struct pt_regs *)((char *)BPF_CORE_READ(task, stack) + user_regs_offset());
}

/* `task` is a pointer that the verifier knows the type of, of a user thread. */
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

/* TASK_* bits; 0: runnable. */
static __always_inline __u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___5_13 *)task)->state;
}

/* What pthread_self() says in the thread: its thread pointer, of a thread that is not running. */
static __always_inline __u64 task_thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task->thread.fsbase;
#elif defined(__TARGET_ARCH_arm64)
	return task->thread.uw.tp_value;
#endif
}

/* The same of the current thread, as it was when that last left its CPU: it does not change. */
static __always_inline __u64 current_thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#elif defined(__TARGET_ARCH_arm64)
	return BPF_CORE_READ(task, thread.uw.tp_value);
#endif
}

/* How long a thread was runnable without a CPU, in all. */
static __always_inline __u64 run_delay(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info))
		return 0; /* without CONFIG_SCHED_INFO */
	return BPF_CORE_READ(task, sched_info.run_delay);
}

/*
 * bpf_get_current_task_btf(): 5.11 (3ca1032ab7ab). Before, the pointer is a mere number: read
 * through it with BPF_CORE_READ().
 */
static __always_inline struct task_struct *current_task(void)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return bpf_get_current_task_btf();
	return (struct task_struct *)bpf_get_current_task();
}

/*
 * task_ns_id() for a pointer that the verifier knows the type of, as current_task() has it where
 * that can be: no helper is called for a thread in the host's own PID namespace.
 */
static __always_inline __u32 typed_task_ns_id(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf) &&
	    task->thread_pid->level == 0)
		return task->pid;
	return task_ns_id(task);
}

#endif
