// SPDX-License-Identifier: Apache-2.0
/* BPF programs on every system call. See every_call.h. */
#include "host/every_call.h"

#include <bpf/libbpf.h>
#include <string.h>

#include "host/kernel.h"
#include "host/tracefs.h"

const char every_call_method[] = "every system call";

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), n = strlen(end);

	return length >= n && !strcmp(text + length - n, end);
}

/* Raw tracepoints have exactly this name; tracepoints of single calls append the call's name. */
static bool is_of_every_call(const struct bpf_program *program)
{
	const char *section = bpf_program__section_name(program);

	return ends_with(section, "tp_btf/sys_enter") || ends_with(section, "tp_btf/sys_exit");
}

bool every_call_runs(const struct bpf_program *program)
{
	return is_of_every_call(program) && bpf_program__autoload(program) &&
	       bpf_program__autoattach(program);
}

static const char *cause_and_fix(void)
{
	if (!tracefs_has("events"))
		return "tracefs is not mounted here, and the agent may not mount it for itself "
		       "(CAP_SYS_ADMIN allows it): mount -t tracefs tracefs "
		       "/sys/kernel/tracing (in Kubernetes: the host's /sys/kernel/tracing as a "
		       "hostPath volume), then start the agent again";
	if (kernel_degraded.n)
		return "requested with --degrade";
	if (!tracefs_has("events/syscalls"))
		return "the kernel was built without CONFIG_FTRACE_SYSCALLS";
	return "a system call's own tracepoint cannot be opened: grant CAP_PERFMON, and "
	       "CAP_SYS_ADMIN where kernel.perf_event_paranoid is above 2";
}

void every_call_why(struct why *ret)
{
	why_fail(ret, 0,
		 "every system call of every process of this host runs a BPF program and takes "
		 "35-110 ns longer, depending on the number of trackers (a call of 50 ns takes "
		 "90 to 160): %s",
		 cause_and_fix());
}
