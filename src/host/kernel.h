/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities of this kernel and rights of the agent; each refusal has a reason. */
#ifndef UNDERSPAN_HOST_KERNEL_H
#define UNDERSPAN_HOST_KERNEL_H

#include <stdbool.h>

#include "base/config.h"
#include "base/util.h"

/*
 * Whether BPF tracing can work: capabilities, BTF, lockdown, PID namespace. 0 or -EPERM, -ENOTSUP
 * with why. Main thread only.
 */
int kernel_check(struct why *why);

/* Whether processes of others can be read; false with why: without CAP_SYS_PTRACE. */
bool kernel_reads_processes(struct why *why);

/* Raises the limit of open files as far as allowed; false with why: too low for all trackers. */
bool kernel_opens_files(struct why *why);

/*
 * Whether perf events (needed to attach system call tracepoints and uprobes) require CAP_SYS_ADMIN:
 * kernel.perf_event_paranoid above 2, Debian's default.
 */
bool kernel_perf_needs_admin(void);

/* Features treated as missing (--degrade=A,B), to test every fallback. */
extern struct string_list kernel_degraded;

/* -EINVAL with why: unknown feature. */
int kernel_check_degraded(struct why *why);

/*
 * Whether this kernel has the feature. The list is in features.c:
 *
 *	"sk_data_ready", ...	a raw tracepoint
 *	"sys_exit_accept4", ...	a system call's own tracepoint: needs CONFIG_FTRACE_SYSCALLS, a
 *				mounted tracefs, and the right to open perf events
 *	"task_storage"		task storage can be created under the scheduler's locks; before 6.4
 *				the general allocator was used (08a7ce384e33), which may wake a task
 *	"bpf_mem_alloc"		BPF map entries can be allocated on demand in any context
 *				(6.1, fba1a1c6c912)
 *	"attach_cookie"		uprobes carry a cookie for the program (5.15)
 *	"uprobe_multi"		a link can have many uprobes (6.6, 89ae89f53d20)
 *	"sched_exit_tp"		tracepoint at the end of schedule() (in 6.18, not in 6.12)
 *	"rseq_update"		tracepoint after each switch of a thread with registered restartable
 *				sequences: up to 6.18; later kernels skip unneeded updates
 */
bool kernel_has(const char *name);

/* Frees the kernel's BTF; cached answers stay. */
void kernel_forget_types(void);

/* Calls back for each feature: name, presence, fallback. */
void kernel_for_each_feature(void (*each)(const char *name, bool there, const char *without));

#endif
