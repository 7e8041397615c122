/* SPDX-License-Identifier: Apache-2.0 */
/* What this kernel and our rights on it allow; each refusal is one sentence. */
#ifndef UNDERSPAN_KERNEL_H
#define UNDERSPAN_KERNEL_H

#include <stdbool.h>

#include "config.h"
#include "util.h"

/* Can BPF tracing work at all: capabilities, BTF, lockdown. 0 or -EPERM, -ENOTSUP with why. */
int kernel_check(struct why *why);

/*
 * Do perf events, which is what tracepoints of system calls and uprobes are attached by, take
 * CAP_SYS_ADMIN? With kernel.perf_event_paranoid above 2, as Debian's kernels have it by default.
 */
bool kernel_perf_needs_admin(void);

/* Features that are treated as missing (--degrade=A,B), so that every fallback can be tested. */
extern struct string_list kernel_degraded;

/* -EINVAL with why when one of them is none. */
int kernel_check_degraded(struct why *why);

/*
 * Does this kernel have the feature? The list is in features.c:
 *
 *	"sk_data_ready", ...	a raw tracepoint
 *	"sys_exit_accept4", ...	a system call's own tracepoint, which takes CONFIG_FTRACE_SYSCALLS
 *				a mounted tracefs, and the right to open perf events
 *	"task_storage"		task storage can be created while the scheduler holds its locks;
 *				before 6.4 it called the general allocator (08a7ce384e33), which may
 *				want to wake somebody
 *	"bpf_mem_alloc"		entries of BPF maps can be allocated anywhere, when they are needed
 *				(6.1, fba1a1c6c912)
 *	"attach_cookie"		a uprobe carries a number for its program (5.15)
 *	"uprobe_multi"		one link can be many uprobes (6.6, 89ae89f53d20)
 *	"sched_exit_tp"		a tracepoint at the end of the scheduler's way (6.18 has it,
 *				6.12 does not)
 *	"rseq_update"		a tracepoint that fires after each switch of a thread that has
 *				registered restartable sequences: up to 6.18; later kernels leave
 *				out what they need not do
 */
bool kernel_has(const char *name);

/* Gives back the memory of what was looked at to answer that; the answers stay. */
void kernel_forget_types(void);

/* For people: each of them, whether it is there, and what is done without it. */
void kernel_for_each_feature(void (*each)(const char *name, bool there, const char *without));

#endif
