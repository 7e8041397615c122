/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The native stack of the current thread by frame pointers, as bpf_get_stack() returns it.
 * bpf_get_stack() takes any value of the frame pointer register for a frame, and pays a page fault
 * (0.7 us in a virtual machine) when a program without frame pointers uses the register otherwise.
 * Frames lie on the stack, each above its callee: the walk ends at any other address.
 */
#ifndef UNDERSPAN_OFF_CPU_USER_STACK_BPF_H
#define UNDERSPAN_OFF_CPU_USER_STACK_BPF_H

#include "lib/compat.bpf.h"

enum { USER_FRAME_MAX_BYTES = 1 << 17, USER_ADDRESS_MIN = 4096 };

struct user_frame {
	__u64 caller; /* frame of the caller */
	__u64 ret;    /* return address */
};

struct user_position {
	__u64 ip, sp, fp;
};

/* Members of struct pt_regs: instruction, stack and frame pointer, and the CPU mode. */
#if defined(__TARGET_ARCH_x86)
#define USER_IP(r)   ((r)->ip)
#define USER_SP(r)   ((r)->sp)
#define USER_FP(r)   ((r)->bp)
#define USER_MODE(r) ((r)->cs)
#define IS_USER32(m) ((m) == 0x23) /* __USER32_CS */
#elif defined(__TARGET_ARCH_arm64)
#define USER_IP(r)   ((r)->user_regs.pc)
#define USER_SP(r)   ((r)->user_regs.sp)
#define USER_FP(r)   ((r)->user_regs.regs[29])
#define USER_MODE(r) ((r)->user_regs.pstate)
#define IS_USER32(m) ((m) & 0x10) /* PSR_MODE32_BIT */
#endif

static __always_inline struct user_position task_user_position(struct task_struct *task)
{
	struct user_position at = {};
	struct pt_regs *regs;
	__u64 mode = 0;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		regs = (void *)bpf_task_pt_regs(task);
		at.ip = USER_IP(regs);
		at.sp = USER_SP(regs);
		at.fp = USER_FP(regs);
		mode = USER_MODE(regs);
	} else {
		regs = task_user_regs(task);
		bpf_core_read(&at.ip, sizeof(at.ip), &USER_IP(regs));
		bpf_core_read(&at.sp, sizeof(at.sp), &USER_SP(regs));
		bpf_core_read(&at.fp, sizeof(at.fp), &USER_FP(regs));
		bpf_core_read(&mode, sizeof(mode), &USER_MODE(regs));
	}
	if (IS_USER32(mode)) /* 32-bit frames have a different layout: only the leaf is reported */
		at.fp = 0;
	return at;
}

/*
 * Writes the return addresses of `current`, the current thread, into map memory: leaf first, then a
 * 0 when there is room. Returns a hash of the addresses.
 */
static __always_inline __u32 user_stack(struct task_struct *current, __u64 *addresses, __u32 max)
{
	struct user_position at = task_user_position(current);
	__u32 hash = (__u32)at.ip ^ (__u32)(at.ip >> 32);
	struct user_frame frame;

	addresses[0] = at.ip;
	for (__u32 i = 1; i < max; i++) {
		addresses[i] = 0;
		if (at.fp & 7 || at.fp - at.sp >= USER_FRAME_MAX_BYTES ||
		    bpf_probe_read_user(&frame, sizeof(frame), (void *)at.fp) ||
		    frame.ret < USER_ADDRESS_MIN)
			break;
		addresses[i] = frame.ret;
		hash = (hash ^ (__u32)frame.ret ^ (__u32)(frame.ret >> 32)) * 0x9e3779b1;
		at.sp = at.fp + sizeof(frame);
		at.fp = frame.caller;
	}
	return hash;
}

#endif
