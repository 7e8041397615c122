// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stalls of event loops: the time from the end of a poll to the beginning of the next poll of the
 * same epoll descriptor, by the same thread. A poll without a timeout, as loops make between two
 * turns, is a poll: the loop sees its descriptors then.
 *
 * Hooks: the two calls' own tracepoints, and perf events of the loops' threads alone (their
 * context switches and CPU clocks), which user space opens for each recognized thread.
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "lib/syscall.bpf.h"
#include "loop_stall/loop.bpf.h"
#include "loop_stall/recognize.bpf.h"
#include "loop_stall/report.bpf.h"
#include "loop_stall/split.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- polls ---- */

static __always_inline void loop_ends_turn(struct loop_thread *loop, bool sleeps)
{
	__u64 begun = loop->busy_ns;

	loop->next_sample_ns = ~0ULL;
	if (begun && bpf_ktime_get_ns() - begun >= min_duration_ns)
		loop_stalled(sleeps);
	loop->busy_ns = 0;
	loop->polls = 1;
}

static __always_inline void poll_enters(__u32 fd, __u32 events, __s32 timeout)
{
	struct loop_thread *loop;

	if (!current_is_python())
		return;
	loop = loop_find();
	if (!loop)
		loop = loop_create();
	if (!loop)
		return;
	if ((loop->kind && loop->epoll_fd == fd) || loop_becomes(loop, fd, events))
		loop_ends_turn(loop, timeout != 0);
}

static __always_inline void poll_returns(long ret)
{
	struct loop_thread *loop;
	struct task_struct *task = current_task();

	loop = process_may_be_known(current_tgid()) ? loop_find() : NULL;
	if (!loop || !loop->polls)
		return;
	loop->polls = 0;
	if (loop->pending && ret >= 0)
		loop_send_waiting(loop, ret, LOOP_ROW_OF_CALL);
	else if (loop->pending)
		loop_send(LOOP_ROW_OF_CALL);
	if (loop->longest_ns || loop->off_ns || loop->cpu_stack) {
		__builtin_memset(loop->part_ns, 0, sizeof(loop->part_ns));
		loop->longest_ns = loop->off_ns = 0;
		loop->longest_stack = loop->cpu_stack = 0;
	}
	loop->next_sample_ns = min_duration_ns / 2;
	loop->exec_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	loop->run_delay_ns = run_delay(task);
	loop->busy_ns = bpf_ktime_get_ns();
}

/* absent on arm64, where epoll_wait() is epoll_pwait() */
SEC("?tracepoint/syscalls/sys_enter_epoll_wait")
int loop_enter_wait(struct syscall_enter *ctx)
{
	poll_enters(ctx->args[0], ctx->args[2], ctx->args[3]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_epoll_wait")
int loop_exit_wait(struct syscall_exit *ctx)
{
	poll_returns(ctx->ret);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_epoll_pwait")
int loop_enter_pwait(struct syscall_enter *ctx)
{
	poll_enters(ctx->args[0], ctx->args[2], ctx->args[3]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_exit_epoll_pwait")
int loop_exit_pwait(struct syscall_exit *ctx)
{
	poll_returns(ctx->ret);
	return 0;
}

/* A new descriptor: an earlier loop with this number is closed. */
static __always_inline void epoll_made(long fd)
{
	struct loop_thread *loop;
	__u64 key, now;

	if (fd < 0 || !current_is_python())
		return;
	key = loop_fd_key(fd);
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&loop_made, &key, &now, BPF_ANY);
	loop = loop_find();
	if (!loop)
		return;
	if (loop->candidate_fd == (__u32)fd)
		loop->candidate_polls = 0;
	if (loop->kind && loop->epoll_fd == (__u32)fd) {
		loop->kind = LOOP_NONE;
		loop->busy_ns = 0;
	}
}

SEC("?tracepoint/syscalls/sys_exit_epoll_create1")
int loop_exit_create(struct syscall_exit *ctx)
{
	epoll_made(ctx->ret);
	return 0;
}

/* The fallback without tracefs: costs every system call of the host 80 ns. */
SEC("?tp_btf/sys_enter")
int BPF_PROG(loop_enter, struct pt_regs *regs, long nr)
{
	if (nr == NR_epoll_wait || nr == NR_epoll_pwait)
		poll_enters(SYSCALL_ARG1(regs), SYSCALL_ARG3(regs), SYSCALL_ARG4(regs));
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(loop_exit, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);

	if (nr == NR_epoll_wait || nr == NR_epoll_pwait)
		poll_returns(ret);
	else if (nr == NR_epoll_create1)
		epoll_made(ret);
	return 0;
}

/* ---- perf events of a loop's thread ---- */

/* The thread leaves its CPU, with interrupts off. */
SEC("perf_event")
int loop_switched_out(struct bpf_perf_event_data *ctx)
{
	struct loop_thread *loop = loop_find();
	struct task_struct *task = current_task();
	struct bpf_perf_event_value value = {};
	__u32 state;

	if (!loop)
		return 0;
	state = untyped_task_state(task);
	if (!loop->busy_ns) {
		if (loop->pending && state)
			loop_send_waiting(loop, 0, LOOP_ROW_OF_SWITCH);
		return 0;
	}
	if (!bpf_perf_prog_read_value(ctx, &value, sizeof(value)))
		loop_leaves(task, loop, state, bpf_ktime_get_ns(), value.enabled);
	return 0;
}

/* The thread was on a CPU for another period of its clock; in an interrupt. */
SEC("perf_event")
int loop_clock(struct bpf_perf_event_data *ctx)
{
	struct loop_thread *loop = loop_find();
	__u64 begun = loop ? loop->busy_ns : 0, age;

	if (!begun)
		return 0;
	age = bpf_ktime_get_ns() - begun;
	if (age < loop->next_sample_ns || loop_keep_stack(LOOP_STACK_CPU))
		return 0;
	loop_sampled(loop, age);
	return 0;
}

/* ---- life of threads ---- */

static __always_inline void loop_thread_ends(void)
{
	__u64 key = bpf_get_current_task();
	struct loop_thread *loop = bpf_map_lookup_elem(&loop_threads, &key);

	if (!loop)
		return;
	loop_send(LOOP_ROW_OF_CALL);
	loop_stacks_delete();
	bpf_map_delete_elem(&loop_watched, &key);
	bpf_map_delete_elem(&loop_threads, &key);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(loop_exec, struct task_struct *task)
{
	loop_thread_ends();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(loop_thread_exit, struct task_struct *task)
{
	loop_thread_ends();
	return 0;
}
