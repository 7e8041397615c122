/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types, as far as the probes read them; kept by hand. A new probe adds the structs
 * and members it reads. Every struct has preserve_access_index: libbpf relocates each access
 * against the BTF of the running kernel (CO-RE), so names matter here, and neither offsets, order
 * nor missing members. A type whose members differ between kernels has a flavour for each form: ___
 * and a version behind the name. bpf/lib/compat.bpf.h uses the flavours and names the kernel's
 * commits.
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
	union {
		struct user_pt_regs user_regs;
		struct {
			__u64 regs[31], sp, pc, pstate;
		};
	};
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

struct ns_common { /* include/linux/ns_common.h */
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct signal_struct {
	atomic_t live;
	unsigned int flags;
	int nr_threads;
	struct list_head thread_head;
};

struct file;

/* ---- control groups: include/linux/kernfs.h, cgroup-defs.h ---- */

struct kernfs_node {
	__u64 id;
	const char *name;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup *dfl_cgrp; /* in the unified hierarchy */
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#elif defined(__TARGET_ARCH_arm64)
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#endif

struct sched_entity {
	__u64 sum_exec_runtime;
};

/* ---- CPU quotas: kernel/sched/sched.h, include/linux/hrtimer.h ---- */

struct hrtimer {
	void *function;
};

struct cfs_bandwidth {
	__s64 period; /* ns */
	__u64 quota;  /* ns */
	struct hrtimer period_timer;
	struct list_head throttled_cfs_rq;
	int nr_periods, nr_throttled;
	__u64 throttled_time; /* ns */
};

struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

/* with CONFIG_SCHED_INFO */
struct sched_info {
	unsigned long long run_delay;
};

struct mm_struct;
struct task_struct {
	void *stack;
	struct sched_entity se;
	struct task_group *sched_task_group;
	__u64 start_time; /* CLOCK_MONOTONIC */
	struct sched_info sched_info;
	unsigned long nvcsw;
	unsigned int __state;
	unsigned int flags;
	int exit_code;
	int pid, tgid;
	unsigned in_iowait : 1;
	unsigned frozen : 1;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct list_head thread_node;
	char comm[16];
	struct mm_struct *mm;
	struct files_struct *files;
	struct signal_struct *signal;
	struct css_set *cgroups;
	__u64 self_exec_id; /* counts exec(); 32 bits before d1e7fd6462ca (5.7) */
	struct thread_struct thread;
};

/* up to 6.18 */
struct task_struct___rseq_pointer {
	void *rseq;
};

/* before 2f064a59a11f (5.14) */
struct task_struct___5_13 {
	volatile long state;
};

/* ---- files and sockets: include/linux/fs.h, net.h, include/net/sock.h ---- */

struct super_block {
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct hlist_head;

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
	void *private_data;
	struct hlist_head *f_ep; /* since 5.11 */
};

struct file___5_10 {
	struct list_head f_ep_links;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

/* ---- include/net/net_namespace.h ---- */

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	possible_net_t skc_net;
	__be32 skc_daddr, skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	__u32 skc_portpair; /* both */
	unsigned short skc_family;
	unsigned long skc_flags;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};

struct timer_list {
	void (*function)(struct timer_list *);
};

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct sk_buff {
	unsigned int len;
	__u16 transport_header, network_header; /* offsets from `head` */
	unsigned char *head, *data;
	struct net_device *dev;
	char cb[48];
};

struct sk_buff_head {
	__u32 qlen;
};

struct socket;

typedef struct {
	int owned; /* by a thread; soft interrupts then leave the socket alone */
} socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	atomic_t sk_drops;
	u32 sk_ack_backlog, sk_max_ack_backlog;
	struct socket *sk_socket;
	socket_lock_t sk_lock;
	__u16 sk_type, sk_protocol;
	__u8 sk_shutdown;
	int sk_err;
};

struct sock___7_2 {
	struct timer_list tcp_retransmit_timer;
};

struct inet_bind_bucket {
	signed char fastreuse;
};

struct inet_connection_sock {
	struct inet_bind_bucket *icsk_bind_hash;
	struct timer_list icsk_delack_timer;
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending, icsk_backoff, icsk_probes_out;
	struct {
		__u32 lrcvtime;
	} icsk_ack;
};

struct inet_connection_sock___7_1 {
	struct timer_list icsk_retransmit_timer;
};

struct request_sock {
	struct sock_common __req_common;
};

struct tcp_request_sock {
	u64 snt_synack; /* microseconds */
};

struct tcp_skb_cb {
	__u16 tcp_gso_segs;
};

/* include/net/af_unix.h */
struct sockaddr_un {
	char sun_path[108];
};

struct unix_address {
	int len; /* of `name` */
	struct sockaddr_un name[];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

struct inet_sock {
	__be16 inet_sport;
};

struct tcp_sock {
	u32 rcv_nxt, copied_seq;
	u32 srtt_us, snd_cwnd, total_retrans;
	u64 bytes_sent, bytes_retrans, bytes_received;
	struct list_head tsorted_sent_queue;
	u32 snd_una, snd_nxt, write_seq, packets_out, lost_out, delivered, tlp_high_seq;
	u32 snd_wnd, rcv_wnd, mss_cache;
	u8 nonagle : 4;
	u32 rcv_tstamp; /* jiffies, like icsk_ack.lrcvtime */
	u64 tcp_mstamp, first_tx_mstamp, delivered_mstamp; /* CLOCK_MONOTONIC, microseconds */
};

/* net/mptcp/protocol.h */
struct mptcp_sock {
	struct sock *first;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct linux_binprm;

/* ---- what programs are called with: include/linux/bpf.h, kernel/bpf/ ---- */

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct task_struct *task;
	struct file *file;
};

/* ---- include/uapi/linux/ethtool.h ---- */

struct ethtool_stats {
	__u32 n_stats;
};

#pragma clang attribute pop

/* A record of tracepoint/syscalls/sys_exit_*: a format of its own, the same everywhere. */
struct syscall_enter {
	__u64 common;
	long nr;
	__u64 args[6];
};

struct syscall_exit {
	__u64 common;
	long nr;
	long ret;
};

#endif
