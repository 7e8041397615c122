/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types as far as underspan's probes read them, kept by hand. Every struct carries
 * preserve_access_index: libbpf relocates each access against the BTF of the kernel it runs on
 * (CO-RE), so only names matter here, not offsets, order or what is left out.
 * A type whose shape differs between kernels has one flavour a shape, ___ and the version behind
 * its name (research: kernel commits are named where the flavour is used, in bpf/lib/compat.bpf.h).
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

#include <linux/types.h>
#include <linux/bpf.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
enum { false = 0, true = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* ---- registers: arch/{x86,arm64}/include/asm/ptrace.h ---- */

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31], sp, pc, pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
	__u64 regs[31], sp, pc, pstate;
	__u64 orig_x0;
	__s32 syscallno;
};
#else
#error "no registers for this architecture yet"
#endif

/* ---- processes: include/linux/sched.h, pid.h, sched/signal.h ---- */

struct list_head {
	struct list_head *next, *prev;
};

typedef struct {
	int counter;
} atomic_t;

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct signal_struct {
	atomic_t live;
	int nr_threads;
	struct list_head thread_head;
};

struct file;

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#endif

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	void *stack;
	int pid, tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct list_head thread_node;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
#if defined(__TARGET_ARCH_x86)
	struct thread_struct thread;
#endif
};

/* ---- files and sockets: include/linux/fs.h, net.h, include/net/sock.h ---- */

struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr, skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};

struct sk_buff {
	unsigned int len;
	unsigned char *data;
};

struct sk_buff_head {
	__u32 qlen;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u8 sk_shutdown;
};

struct tcp_sock {
	u32 rcv_nxt, copied_seq;
};

struct socket {
	struct sock *sk;
};

struct linux_binprm;

#pragma clang attribute pop

#endif
