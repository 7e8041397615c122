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

/* bpf_get_attach_cookie(): 5.15 (7adfc6c9b315). Before, the answer is 0 for every probe. */
static __always_inline __u64 attach_cookie(void *ctx)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_attach_cookie))
		return bpf_get_attach_cookie(ctx);
	return 0;
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

#endif
