/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why a thread is off the CPU: derived from the system call and the type of the file behind its
 * descriptor.
 */
#ifndef UNDERSPAN_OFF_CPU_CAUSE_BPF_H
#define UNDERSPAN_OFF_CPU_CAUSE_BPF_H

#include "lib/compat.bpf.h"
#include "lib/file.bpf.h"
#include "events/off_cpu.h"

/* loop_stall's pointer has no type before 5.11 */
static __always_inline struct file *file_of(struct task_struct *task, __u32 fd)
{
	return has_typed_current() ? fd_to_file(task, fd) : untyped_fd_to_file(task, fd);
}

static __always_inline __u8 cause_of_file(struct file *file)
{
	__u32 type;

	if (!file)
		return OFF_CPU_CAUSE_other;
	type = file_type(file);
	if (type == S_IFSOCK)
		return OFF_CPU_CAUSE_net;
	if (type == S_IFIFO)
		return OFF_CPU_CAUSE_pipe;
	if (type == S_IFREG || type == S_IFBLK || type == S_IFDIR)
		return OFF_CPU_CAUSE_disk;
	return OFF_CPU_CAUSE_other;
}

static __always_inline __u8 cause_of_fd(struct task_struct *task, __u32 fd)
{
	return cause_of_file(file_of(task, fd));
}

/* subprocess.Popen.communicate(): the child's input, output and errors */
enum { POLL_PIPES_MAX = 3 };

/* Does poll(), of several descriptors, begin with two pipes? Then a parent waits for its child. */
static __always_inline bool polls_pipes(struct task_struct *task, struct user_call *call)
{
	struct {
		__u32 fd;
		__u16 events, revents;
	} polled[2];

	if (call->arg2 > POLL_PIPES_MAX ||
	    bpf_probe_read_user(polled, sizeof(polled), (void *)call->arg1))
		return false;
	return cause_of_fd(task, polled[0].fd) == OFF_CPU_CAUSE_pipe &&
	       cause_of_fd(task, polled[1].fd) == OFF_CPU_CAUSE_pipe;
}

/*
 * Clients wait for their server with poll() of a single descriptor: the descriptor's type is the
 * cause. A server that polls its listener (socketserver.serve_forever()) is idle, as in accept().
 * poll() without descriptors is a sleep; poll() of several that are no child's pipes, and epoll,
 * are an idle event loop. A disk is never waited for in poll(): a pidfd's inode is that of a
 * regular file.
 */
static __always_inline __u8 cause_of_poll(struct task_struct *task, struct user_call *call,
					  __u8 *ret_idle)
{
	__u32 fd = 0;

	if (call->arg2 == 0)
		return OFF_CPU_CAUSE_sleep;
	if (call->arg2 == 1 && !bpf_probe_read_user(&fd, sizeof(fd), (void *)call->arg1)) {
		struct file *file = file_of(task, fd);
		__u8 cause = cause_of_file(file);

		*ret_idle = cause == OFF_CPU_CAUSE_net && socket_listens(file);
		if (cause == OFF_CPU_CAUSE_net || cause == OFF_CPU_CAUSE_pipe)
			return cause;
		return file_is_pidfd(file) ? OFF_CPU_CAUSE_child : OFF_CPU_CAUSE_poll;
	}
	if (polls_pipes(task, call))
		return OFF_CPU_CAUSE_pipe;
	*ret_idle = 1;
	return OFF_CPU_CAUSE_poll;
}

/* fcntl() waits only for a lock: include/uapi/asm-generic/fcntl.h, include/uapi/linux/fcntl.h */
enum { F_SETLKW = 7, F_OFD_SETLKW = 38 };

/* include/linux/sched.h; TASK_FROZEN since 6.1 */
enum {
	TASK_INTERRUPTIBLE = 1,
	TASK_UNINTERRUPTIBLE = 2,
	TASK_STOPPED = 4,
	TASK_TRACED = 8,
	TASK_FROZEN = 0x8000,
};

/* The process is held by a signal, by a debugger or by the freezer of its cgroup. */
static const __u32 TASK_HELD = TASK_STOPPED | TASK_TRACED | TASK_FROZEN;

/*
 * A cgroup of version 2 freezes a thread in an interruptible sleep on its way to user mode, with
 * the registers of the call in which it was (do_freezer_trap(), kernel/signal.c). The flag alone
 * does not tell: stopped threads and those in vfork() have it, too.
 */
static __always_inline __u32 state_if_frozen(__u32 state, bool frozen)
{
	return state & TASK_INTERRUPTIBLE && frozen ? TASK_FROZEN : state;
}

/* `state`: TASK_* bits. */
static __always_inline __u8 cause_of_call(struct task_struct *task, struct user_call *call,
					  __u32 state, __u8 *ret_idle)
{
	switch (call->nr) {
	case NR_futex:
	case NR_futex_wait:
	case NR_futex_waitv:
	case NR_semop:
	case NR_semtimedop:
	case NR_flock:
		return OFF_CPU_CAUSE_lock;
	case NR_fcntl:
		return call->arg2 == F_SETLKW || call->arg2 == F_OFD_SETLKW ? OFF_CPU_CAUSE_lock
									    : OFF_CPU_CAUSE_other;
	case NR_nanosleep:
	case NR_clock_nanosleep:
		return OFF_CPU_CAUSE_sleep;
	case NR_poll:
	case NR_ppoll:
		return cause_of_poll(task, call, ret_idle);
	case NR_select:
	case NR_pselect6:
		if (call->arg1 == 0)
			return OFF_CPU_CAUSE_sleep;
		*ret_idle = 1;
		return OFF_CPU_CAUSE_poll;
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2:
		*ret_idle = 1;
		return OFF_CPU_CAUSE_poll;
	case NR_accept:
	case NR_accept4:
		*ret_idle = 1;
		return OFF_CPU_CAUSE_net;
	case NR_connect:
	case NR_sendto:
	case NR_recvfrom:
	case NR_sendmsg:
	case NR_recvmsg:
	case NR_sendmmsg:
	case NR_recvmmsg:
		return OFF_CPU_CAUSE_net;
	case NR_wait4:
	case NR_waitid:
		return OFF_CPU_CAUSE_child;
	case NR_fsync:
	case NR_fdatasync:
	case NR_sync:
	case NR_syncfs:
	case NR_sync_file_range:
	case NR_io_getevents:
	case NR_stat:
	case NR_fstat:
	case NR_lstat:
	case NR_newfstatat:
	case NR_statx:
	case NR_access:
	case NR_faccessat:
	case NR_faccessat2:
	case NR_getdents:
	case NR_getdents64:
	case NR_readlink:
	case NR_readlinkat:
	case NR_truncate:
	case NR_ftruncate:
	case NR_fallocate:
	case NR_copy_file_range:
	case NR_mkdir:
	case NR_mkdirat:
	case NR_rmdir:
	case NR_unlink:
	case NR_unlinkat:
	case NR_rename:
	case NR_renameat:
	case NR_renameat2:
	case NR_link:
	case NR_linkat:
	case NR_symlink:
	case NR_symlinkat:
		return OFF_CPU_CAUSE_disk;
	/* an interruptible wait may be for the other end of a FIFO, or for a terminal */
	case NR_open:
	case NR_openat:
	case NR_openat2:
		return state & TASK_UNINTERRUPTIBLE ? OFF_CPU_CAUSE_disk : OFF_CPU_CAUSE_other;
	case NR_read:
	case NR_write:
	case NR_readv:
	case NR_writev:
	case NR_pread64:
	case NR_pwrite64:
	case NR_preadv:
	case NR_pwritev:
	case NR_sendfile:
		return cause_of_fd(task, call->arg1);
	}
	return OFF_CPU_CAUSE_other;
}

/*
 * Read from memory, the cause is any number to the verifier. Otherwise the verifier explores what
 * follows once per cause.
 */
static __always_inline __u8 off_cpu_cause_of(const struct off_cpu *off)
{
	return *(const volatile __u8 *)&off->cause;
}

/* The letter of /proc/PID/stat for TASK_* bits (include/linux/sched.h). */
static __always_inline __u8 state_letter(__u32 state)
{
	if (!state)
		return 'R';
	if (state & TASK_INTERRUPTIBLE)
		return 'S';
	if (state & TASK_UNINTERRUPTIBLE) /* with TASK_NOLOAD (0x400): an idle kernel thread */
		return state & 0x400 ? 'I' : 'D';
	if (state & TASK_STOPPED)
		return 'T';
	if (state & TASK_FROZEN)
		return 'F'; /* no letter of /proc: D before 6.1, S with version 2 */
	return state & TASK_TRACED ? 't' : '?';
}

#endif
