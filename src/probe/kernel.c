// SPDX-License-Identifier: Apache-2.0
/* Our rights on this kernel. See kernel.h; what it can do is asked in features.c. */
#include "probe/kernel.h"

#include <string.h>
#include <sys/capability.h>

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

bool kernel_perf_needs_admin(void)
{
	AUTO_FCLOSE FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
	int level = 0;

	return f && fscanf(f, "%d", &level) == 1 && level > 2;
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
