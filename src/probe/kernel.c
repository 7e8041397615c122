// SPDX-License-Identifier: Apache-2.0
/* What this kernel and our rights on it allow. See kernel.h. */
#include "probe/kernel.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/syscall.h>

struct string_list kernel_degraded;

static bool have_capability(cap_value_t capability)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (!caps)
		return false;
	cap_get_flag(caps, capability, CAP_EFFECTIVE, &value);
	cap_free(caps);
	return value == CAP_SET;
}

static int check_capabilities(struct why *why)
{
	/* CAP_SYS_ADMIN was all of these before 5.8 and still includes them */
	if (have_capability(CAP_SYS_ADMIN))
		return 0;
	if (!have_capability(CAP_BPF))
		return why_fail(why, EPERM,
				"missing capability CAP_BPF (to load BPF programs): run "
				"as root, or as deploy/systemd/underspan.service does");
	if (!have_capability(CAP_PERFMON))
		return why_fail(
			why, EPERM,
			"missing capability CAP_PERFMON (to attach to tracepoints and "
			"uprobes): run as root, or as deploy/systemd/underspan.service does");
	return 0;
}

static int check_lockdown(struct why *why)
{
	AUTO_FCLOSE FILE *f = fopen("/sys/kernel/security/lockdown", "re");
	char line[128];

	/* "none [integrity] confidentiality"; only the last takes bpf_probe_read*() away */
	if (f && fgets(line, sizeof(line), f) && strstr(line, "[confidentiality]"))
		return why_fail(why, EPERM,
				"kernel lockdown is 'confidentiality', under which BPF cannot read "
				"memory: boot with lockdown=integrity or none");
	return 0;
}

int kernel_check(struct why *why)
{
	int err = check_capabilities(why);

	if (!err && access("/sys/kernel/btf/vmlinux", R_OK))
		err = why_fail(why, ENOTSUP,
			       "no /sys/kernel/btf/vmlinux: underspan needs a kernel built with "
			       "CONFIG_DEBUG_INFO_BTF (5.10 or later), and /sys mounted");
	return err ? err : check_lockdown(why);
}

static bool is_degraded(const char *name)
{
	for (size_t i = 0; i < kernel_degraded.n; i++) {
		if (!strcmp(kernel_degraded.items[i], name))
			return true;
	}
	return false;
}

bool kernel_has_tracepoint(const char *name)
{
	return !is_degraded(name) && libbpf_find_vmlinux_btf_id(name, BPF_TRACE_RAW_TP) > 0;
}

bool kernel_has_syscall_tracepoint(const char *name)
{
	/* the two places where libbpf looks */
	static const char *const roots[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	char path[256];

	for (size_t i = 0; i < ARRAY_SIZE(roots) && !is_degraded(name); i++) {
		snprintf(path, sizeof(path), "%s/events/syscalls/%s/id", roots[i], name);
		/* access() itself asks for the real user, without capabilities */
		if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0)
			return true;
	}
	return false;
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

bool kernel_has_task_storage(void)
{
	struct btf *btf;
	bool has;

	if (is_degraded("task_storage"))
		return false;
	btf = btf__load_vmlinux_btf();
	if (!btf)
		return false;
	/* the allocator that can be used anywhere, and what came after it */
	has = struct_has_member(btf, "bpf_local_storage_map", "storage_ma") ||
	      struct_has_member(btf, "bpf_local_storage_map", "use_kmalloc_nolock");
	btf__free(btf);
	return has;
}

bool kernel_has_rseq_update(void)
{
	struct btf *btf;
	bool has;

	if (!kernel_has_tracepoint("rseq_update"))
		return false;
	btf = btf__load_vmlinux_btf();
	if (!btf)
		return false;
	has = struct_has_member(btf, "task_struct", "rseq_event_mask");
	btf__free(btf);
	return has;
}

bool kernel_has_attach_cookie(void)
{
	static int answer = -1;

	if (answer < 0)
		answer = !is_degraded("attach_cookie") &&
			 libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_get_attach_cookie,
						 NULL) == 1;
	return answer;
}

/* BPF_LINK_CREATE's part of union bpf_attr (include/uapi/linux/bpf.h of 6.6) */
struct uprobe_multi_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, multi_flags, pid, pad;
};

int kernel_attach_uprobes(int program_fd, const char *path, const struct kernel_uprobes *uprobes)
{
	struct uprobe_multi_attr attr = {
		.prog_fd = (uint32_t)program_fd,
		.attach_type = KERNEL_TRACE_UPROBE_MULTI,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)uprobes->offsets,
		.ref_ctr_offsets = (uintptr_t)uprobes->ref_ctr_offsets,
		.cookies = (uintptr_t)uprobes->cookies,
		.cnt = (uint32_t)uprobes->n,
	};
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

/* Asked with a file that can never be probed: only a kernel that knows the matter says so. */
static bool probe_uprobe_multi(void)
{
	const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts,
		    .expected_attach_type = (enum bpf_attach_type)KERNEL_TRACE_UPROBE_MULTI);
	const uint64_t zero = 0;
	AUTO_CLOSE int program = -1, link = -1;

	program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", nothing, ARRAY_SIZE(nothing),
				&opts);
	if (program < 0)
		return false;
	link = kernel_attach_uprobes(program, "/",
				     &(struct kernel_uprobes){ &zero, &zero, &zero, 1 });
	return link == -EBADF;
}

bool kernel_has_uprobe_multi(void)
{
	static int answer = -1;

	if (answer < 0)
		answer = !is_degraded("uprobe_multi") && kernel_has_attach_cookie() &&
			 probe_uprobe_multi();
	return answer;
}
