// SPDX-License-Identifier: Apache-2.0
/*
 * Kernel features, each detected once, and their fallbacks. See kernel.h. `--degrade=NAME` treats a
 * feature as missing, to test its fallback.
 */
#include "host/kernel.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "host/tracefs.h"
#include "host/uprobe_multi.h"

struct string_list kernel_degraded;

/* ---- detection ---- */

static struct btf *kernel_types; /* megabytes; loading takes milliseconds */

/* NULL: kernel without BTF. */
static const struct btf *types(void)
{
	if (!kernel_types)
		kernel_types = btf__load_vmlinux_btf();
	return libbpf_get_error(kernel_types) ? NULL : kernel_types;
}

void kernel_forget_types(void)
{
	btf__free(kernel_types);
	kernel_types = NULL;
}

/* Same search as libbpf for the target of a tp_btf program. */
static bool has_tracepoint(const char *name)
{
	char type[128];

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	return types() && btf__find_by_name_kind(types(), type, BTF_KIND_TYPEDEF) > 0;
}

static bool has_syscall_tracepoint(const char *name)
{
	return tracefs_has_tracepoint("syscalls", name);
}

static bool has_io_uring_tracepoint(const char *name)
{
	return tracefs_has_tracepoint("io_uring", name);
}

static bool has_private_tracefs(const char *name)
{
	(void)name;
	return tracefs_private();
}

static bool struct_has_member(const struct btf *btf, const char *name, const char *member)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT);
	const struct btf_type *type = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;

	for (int i = 0; type && i < btf_vlen(type); i++) {
		if (!strcmp(btf__name_by_offset(btf, btf_members(type)[i].name_off), member))
			return true;
	}
	return false;
}

static bool kernel_struct_has(const char *name, const char *member)
{
	return types() && struct_has_member(types(), name, member);
}

static bool has_task_storage(const char *name)
{
	(void)name;
	/* the allocator usable in any context, and its successor */
	return kernel_struct_has("bpf_local_storage_map", "storage_ma") ||
	       kernel_struct_has("bpf_local_storage_map", "use_kmalloc_nolock");
}

static bool has_mem_alloc(const char *name)
{
	(void)name;
	return kernel_struct_has("bpf_htab", "ma");
}

static bool has_attach_cookie(const char *name)
{
	(void)name;
	return libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_get_attach_cookie, NULL) == 1;
}

static bool has_uprobe_multi(const char *name)
{
	(void)name;
	return kernel_has("attach_cookie") && uprobe_multi_works();
}

static bool has_rseq_update(const char *name)
{
	return has_tracepoint(name) && kernel_struct_has("task_struct", "rseq_event_mask");
}

/* ---- the list ---- */

#define EVERY_CALL_BEGINS "handoff: a program at the beginning of every system call"
#define EVERY_ACCEPT_ENDS "handoff, tcp_accept, request: a program at the end of every system call"
#define EVERY_LOOP_CALL                                                                            \
	"loop_stall: a program at both ends of every system call (arm64 has only epoll_pwait())"
#define EVERY_WRITE_ENDS                                                                           \
	"request, without sock_recv_length: a program at the end of every system call"

static struct {
	const char *name;
	bool (*look)(const char *name);
	const char *without;				 /* the fallback, or the events not seen */
	_Atomic enum { UNKNOWN, THERE, MISSING } answer; /* read and written on any thread */
} features[] = {
	{ "attach_cookie", has_attach_cookie, "uprobes: a copy of the program for each probe" },
	{ "uprobe_multi", has_uprobe_multi, "uprobes: a link for each, slow to remove" },
	{ "task_storage", has_task_storage, "off_cpu, gil_wait: threads in a preallocated map" },
	{ "bpf_mem_alloc", has_mem_alloc, "BPF maps take all their memory at the start" },
	{ "sched_exit_tp", has_tracepoint,
	  "off_cpu, gil_wait: Python stacks of threads back on a CPU at rseq_update" },
	{ "rseq_update", has_rseq_update,
	  "off_cpu: Python stacks at the end of system calls, a cost for all system calls" },
	{ "sk_data_ready", has_tracepoint, "handoff: bytes arrive at tcp_probe" },
	{ "sock_recv_length", has_tracepoint,
	  "handoff: reads by calls other than recv() are seen for TCP only; request: TCP only, "
	  "writes at the end of system calls" },
	{ "private_tracefs", has_private_tracefs,
	  "system calls' own tracepoints need a mounted tracefs" },
	{ "sys_enter_recvfrom", has_syscall_tracepoint, EVERY_CALL_BEGINS },
	{ "sys_enter_sendto", has_syscall_tracepoint, EVERY_CALL_BEGINS },
	{ "sys_enter_ioctl", has_syscall_tracepoint, EVERY_CALL_BEGINS },
	{ "sys_enter_epoll_ctl", has_syscall_tracepoint, EVERY_CALL_BEGINS },
	{ "sys_enter_ppoll", has_syscall_tracepoint, EVERY_CALL_BEGINS },
	{ "sys_enter_poll", has_syscall_tracepoint,
	  "handoff: poll() is no touch (arm64 has only ppoll())" },
	{ "sys_exit_accept", has_syscall_tracepoint, EVERY_ACCEPT_ENDS },
	{ "sys_exit_accept4", has_syscall_tracepoint, EVERY_ACCEPT_ENDS },
	{ "sys_enter_epoll_wait", has_syscall_tracepoint, EVERY_LOOP_CALL },
	{ "sys_exit_epoll_wait", has_syscall_tracepoint, EVERY_LOOP_CALL },
	{ "sys_enter_epoll_pwait", has_syscall_tracepoint, EVERY_LOOP_CALL },
	{ "sys_exit_epoll_pwait", has_syscall_tracepoint, EVERY_LOOP_CALL },
	{ "sys_exit_epoll_create1", has_syscall_tracepoint, EVERY_LOOP_CALL },
	{ "sys_exit_sendto", has_syscall_tracepoint, EVERY_WRITE_ENDS },
	{ "sys_exit_write", has_syscall_tracepoint, EVERY_WRITE_ENDS },
	{ "sys_exit_writev", has_syscall_tracepoint, EVERY_WRITE_ENDS },
	{ "sys_exit_sendmsg", has_syscall_tracepoint, EVERY_WRITE_ENDS },
	{ "sys_exit_sendfile64", has_syscall_tracepoint, EVERY_WRITE_ENDS },
	{ "io_uring_complete", has_io_uring_tracepoint,
	  "tcp_accept: no rows of connections accepted by io_uring" },
	{ "sys_exit_connect", has_syscall_tracepoint,
	  "tcp_connect: a program at the end of every system call" },
	{ "sys_exit_getsockopt", has_syscall_tracepoint,
	  "tcp_connect: a program at the end of every system call" },
	{ "tcp_cong_state_set", has_tracepoint,
	  "tcp_loss: kind of a retransmission, known at the next retransmission" },
	{ "tcp_retransmit_synack", has_tracepoint, "tcp_loss: no synack_retransmit" },
	{ "tcp_receive_reset", has_tracepoint, "tcp_loss: no rst_received" },
	{ "tcp_send_reset", has_tracepoint, "tcp_loss: no rst_sent" },
	{ "tcp_rcv_space_adjust", has_tracepoint, "tcp_loss: no zero_window_sent" },
	{ "timer_start", has_tracepoint, "tcp_loss: no zero_window_received" },
	{ "timer_expire_exit", has_tracepoint, "tcp_loss: no tail loss probes with new data" },
	{ "hrtimer_expire_entry", has_tracepoint,
	  "cpu_throttle: ends of throttling, to the second" },
};

static bool is_degraded(const char *name)
{
	for (size_t i = 0; i < kernel_degraded.n; i++) {
		if (!strcmp(kernel_degraded.items[i], name))
			return true;
	}
	return false;
}

bool kernel_has(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		if (strcmp(features[i].name, name) != 0)
			continue;
		if (is_degraded(name))
			return false;
		if (features[i].answer == UNKNOWN)
			features[i].answer = features[i].look(name) ? THERE : MISSING;
		return features[i].answer == THERE;
	}
	return false;
}

void kernel_for_each_feature(void (*each)(const char *name, bool there, const char *without))
{
	for (size_t i = 0; i < ARRAY_SIZE(features); i++)
		each(features[i].name, kernel_has(features[i].name), features[i].without);
}

static bool is_feature(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		if (!strcmp(features[i].name, name))
			return true;
	}
	return false;
}

int kernel_check_degraded(struct why *why)
{
	struct nearest nearest;
	char names[1200] = "; there are ", hint[1200];

	for (size_t i = 0; i < ARRAY_SIZE(features); i++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
			 i ? ", " : "", features[i].name);
	for (size_t i = 0; i < kernel_degraded.n; i++) {
		const char *name = kernel_degraded.items[i];

		if (is_feature(name))
			continue;
		nearest_begin(&nearest, name, strlen(name));
		for (size_t k = 0; k < ARRAY_SIZE(features); k++)
			nearest_try(&nearest, features[k].name);
		return why_fail(why, EINVAL, "degrade: there is no '%.64s'%s", name,
				nearest_hint(&nearest, "", names, hint, sizeof(hint)));
	}
	return 0;
}
