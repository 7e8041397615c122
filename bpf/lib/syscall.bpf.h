/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls in raw tracepoints: numbers and argument registers of both architectures
 * (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
 */
#ifndef UNDERSPAN_SYSCALL_BPF_H
#define UNDERSPAN_SYSCALL_BPF_H

#include "vmlinux.h"

#if defined(__TARGET_ARCH_x86)
enum syscall_nr {
	NR_read = 0,
	NR_write = 1,
	NR_close = 3,
	NR_poll = 7,
	NR_ioctl = 16,
	NR_readv = 19,
	NR_writev = 20,
	NR_sendfile = 40,
	NR_connect = 42,
	NR_accept = 43,
	NR_sendto = 44,
	NR_recvfrom = 45,
	NR_sendmsg = 46,
	NR_recvmsg = 47,
	NR_shutdown = 48,
	NR_getsockname = 51,
	NR_getpeername = 52,
	NR_setsockopt = 54,
	NR_getsockopt = 55,
	NR_fcntl = 72,
	NR_futex = 202,
	NR_epoll_ctl = 233,
	NR_ppoll = 271,
	NR_accept4 = 288,
	NR_recvmmsg = 299,
	NR_sendmmsg = 307,
	NR_select = 23,
	NR_pread64 = 17,
	NR_pwrite64 = 18,
	NR_pause = 34,
	NR_nanosleep = 35,
	NR_exit = 60,
	NR_wait4 = 61,
	NR_kill = 62,
	NR_fsync = 74,
	NR_fdatasync = 75,
	NR_sync = 162,
	NR_tkill = 200,
	NR_io_getevents = 208,
	NR_clock_nanosleep = 230,
	NR_exit_group = 231,
	NR_tgkill = 234,
	NR_epoll_wait = 232,
	NR_waitid = 247,
	NR_pselect6 = 270,
	NR_sync_file_range = 277,
	NR_epoll_pwait = 281,
	NR_epoll_create1 = 291,
	NR_preadv = 295,
	NR_pwritev = 296,
	NR_syncfs = 306,
	NR_epoll_pwait2 = 441,
	NR_futex_waitv = 449,
	NR_futex_wake = 454,
	NR_futex_wait = 455,
};
/* sys_exit has no number: read from the registers */
#define SYSCALL_NR_FIELD(r) ((r)->orig_ax)
#define SYSCALL_RET(r)	    ((long)(r)->ax)
#define SYSCALL_ARG1(r)	    ((r)->di)
#define SYSCALL_ARG2(r)	    ((r)->si)
#define SYSCALL_ARG3(r)	    ((r)->dx)
#define SYSCALL_ARG4(r)	    ((r)->r10)
#elif defined(__TARGET_ARCH_arm64)
enum syscall_nr {
	NR_read = 63,
	NR_write = 64,
	NR_close = 57,
	NR_poll = -2,
	NR_ioctl = 29,
	NR_readv = 65,
	NR_writev = 66,
	NR_sendfile = 71,
	NR_accept = 202,
	NR_connect = 203,
	NR_sendto = 206,
	NR_recvfrom = 207,
	NR_sendmsg = 211,
	NR_recvmsg = 212,
	NR_shutdown = 210,
	NR_getsockname = 204,
	NR_getpeername = 205,
	NR_setsockopt = 208,
	NR_getsockopt = 209,
	NR_fcntl = 25,
	NR_futex = 98,
	NR_epoll_ctl = 21,
	NR_ppoll = 73,
	NR_accept4 = 242,
	NR_recvmmsg = 243,
	NR_sendmmsg = 269,
	NR_select = -3,
	NR_pread64 = 67,
	NR_pwrite64 = 68,
	NR_pause = -4,
	NR_nanosleep = 101,
	NR_wait4 = 260,
	NR_exit = 93,
	NR_exit_group = 94,
	NR_kill = 129,
	NR_tkill = 130,
	NR_tgkill = 131,
	NR_fsync = 82,
	NR_fdatasync = 83,
	NR_sync = 81,
	NR_io_getevents = 4,
	NR_clock_nanosleep = 115,
	NR_epoll_wait = -5,
	NR_waitid = 95,
	NR_pselect6 = 72,
	NR_sync_file_range = 84,
	NR_epoll_pwait = 22,
	NR_epoll_create1 = 20,
	NR_preadv = 69,
	NR_pwritev = 70,
	NR_syncfs = 267,
	NR_epoll_pwait2 = 441,
	NR_futex_waitv = 449,
	NR_futex_wake = 454,
	NR_futex_wait = 455,
};
#define SYSCALL_NR_FIELD(r) ((r)->syscallno)
#define SYSCALL_RET(r)	    ((long)(r)->user_regs.regs[0])
#define SYSCALL_ARG1(r)	    ((r)->orig_x0)
#define SYSCALL_ARG2(r)	    ((r)->user_regs.regs[1])
#define SYSCALL_ARG3(r)	    ((r)->user_regs.regs[2])
#define SYSCALL_ARG4(r)	    ((r)->user_regs.regs[3])
#endif
#define SYSCALL_NR(r) ((long)SYSCALL_NR_FIELD(r))

#endif
