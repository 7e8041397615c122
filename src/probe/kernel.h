/* SPDX-License-Identifier: Apache-2.0 */
/* What this kernel and our rights on it allow; each refusal is one sentence. */
#ifndef UNDERSPAN_KERNEL_H
#define UNDERSPAN_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "util.h"

/* Can BPF tracing work at all: capabilities, BTF, lockdown. 0 or -EPERM, -ENOTSUP with why. */
int kernel_check(struct why *why);

/* Features that are treated as missing (--degrade=A,B), so that every fallback can be tested. */
extern struct string_list kernel_degraded;

/* Does the kernel have this raw tracepoint, "sk_data_ready"? */
bool kernel_has_tracepoint(const char *name);

/*
 * Can a system call's own tracepoint, "sys_exit_accept4", be attached to? That takes a kernel with
 * CONFIG_FTRACE_SYSCALLS and a mounted tracefs.
 */
bool kernel_has_syscall_tracepoint(const char *name);

/*
 * Can task storage be created while the scheduler holds its locks? Before 6.4 it called the
 * general allocator (08a7ce384e33), which may want to wake somebody.
 */
bool kernel_has_task_storage(void);

/* Does a uprobe carry a number for its program (5.15)? --degrade=attach_cookie */
bool kernel_has_attach_cookie(void);

/*
 * The tracepoint rseq_update fires after each switch of a thread that has registered restartable
 * sequences: up to 6.18; later kernels leave out what they need not do.
 */
bool kernel_has_rseq_update(void);

/* Can one link be many uprobes (6.6, 89ae89f53d20)? --degrade=uprobe_multi */
bool kernel_has_uprobe_multi(void);

/* libbpf and its headers may be older than that. */
enum { KERNEL_TRACE_UPROBE_MULTI = 48 }; /* BPF_TRACE_UPROBE_MULTI */

struct kernel_uprobes {
	const uint64_t *offsets, *ref_ctr_offsets, *cookies; /* in the file; n each */
	size_t n;
};

/* The link's descriptor or -errno. The program was loaded for KERNEL_TRACE_UPROBE_MULTI. */
int kernel_attach_uprobes(int program_fd, const char *path, const struct kernel_uprobes *uprobes);

#endif
