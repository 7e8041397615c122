// SPDX-License-Identifier: Apache-2.0
/* Many uprobes as a single link. See uprobe_multi.h. */
#include "host/uprobe_multi.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/syscall.h>

#include "base/util.h"

/* BPF_LINK_CREATE's part of union bpf_attr (include/uapi/linux/bpf.h of 6.6) */
struct uprobe_multi_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, multi_flags, pid, pad;
};

int uprobe_multi_attach(int program_fd, const char *path, const struct uprobe_multi *uprobes)
{
	struct uprobe_multi_attr attr = {
		.prog_fd = (uint32_t)program_fd,
		.attach_type = UPROBE_MULTI_ATTACH_TYPE,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)uprobes->offsets,
		.ref_ctr_offsets = (uintptr_t)uprobes->ref_ctr_offsets,
		.cookies = (uintptr_t)uprobes->cookies,
		.cnt = (uint32_t)uprobes->n,
	};
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

/* Tries a file that cannot be probed: kernels with support return a different error. */
bool uprobe_multi_works(void)
{
	const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts,
		    .expected_attach_type = (enum bpf_attach_type)UPROBE_MULTI_ATTACH_TYPE);
	const uint64_t zero = 0;
	AUTO_CLOSE int program = -1, link = -1;

	program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", nothing, ARRAY_SIZE(nothing),
				&opts);
	if (program < 0)
		return false;
	link = uprobe_multi_attach(program, "/", &(struct uprobe_multi){ &zero, &zero, &zero, 1 });
	return link == -EBADF;
}
