// SPDX-License-Identifier: Apache-2.0
/* Rights of the agent on this kernel. See kernel.h; features are in features.c. */
#include "host/kernel.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>

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

static bool is_initial_user_namespace(void)
{
	enum { INITIAL = 0xEFFFFFFD }; /* PROC_USER_INIT_INO, equal on all kernels */
	struct stat st;

	return stat("/proc/self/ns/user", &st) || st.st_ino == (ino_t)(uint32_t)INITIAL;
}

static int check_capabilities(struct why *why)
{
	/* there, root has all of them, and the kernel accepts none for BPF */
	if (!is_initial_user_namespace())
		return why_fail(why, EPERM,
				"underspan runs in a user namespace, whose root may not load BPF "
				"programs: start it as root of the host (no rootless container, "
				"no userns-remap or hostUsers: false)");
	/* CAP_SYS_ADMIN includes all of the listed capabilities (the only capability before 5.8) */
	if (have_capability(CAP_SYS_ADMIN))
		return 0;
	if (!have_capability(CAP_BPF))
		return why_fail(why, EPERM,
				"missing capability CAP_BPF (to load BPF programs): run "
				"as root (sudo), or as the unit underspan.service does");
	if (!have_capability(CAP_PERFMON))
		return why_fail(
			why, EPERM,
			"missing capability CAP_PERFMON (to attach to tracepoints and "
			"uprobes): run as root (sudo), or as the unit underspan.service does");
	return 0;
}

bool kernel_reads_processes(struct why *why)
{
	if (have_capability(CAP_SYS_PTRACE))
		return true;
	why_fail(why, EPERM,
		 "missing capability CAP_SYS_PTRACE (to read /proc and memory of other processes): "
		 "processes with other users or more capabilities are not watched; run as root "
		 "(sudo), or as the unit underspan.service does");
	return false;
}

/* Programs, maps, rings, probes and readers have some 370 descriptors with all trackers. */
enum { FILES_NEEDED = 512, FILES_WANTED = 1024 };

bool kernel_opens_files(struct why *why)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= FILES_NEEDED)
		return true;
	limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= FILES_NEEDED)
		return true;
	why_fail(why, EMFILE,
		 "the limit of open files is %llu, too few for all trackers: raise it to %d "
		 "(`ulimit -n`, LimitNOFILE of the unit)",
		 (unsigned long long)limit.rlim_cur, FILES_WANTED);
	return false;
}

static int check_lockdown(struct why *why)
{
	AUTO_FCLOSE FILE *f = fopen("/sys/kernel/security/lockdown", "re");
	char line[128];

	/* "none [integrity] confidentiality"; only the last disables bpf_probe_read*() */
	if (f && fgets(line, sizeof(line), f) && strstr(line, "[confidentiality]"))
		return why_fail(why, EPERM,
				"kernel lockdown is 'confidentiality', under which BPF cannot read "
				"memory: boot with lockdown=integrity or none");
	return 0;
}

/* ---- process ids ---- */

/* Thread id as seen by BPF programs, in the initial PID namespace. -1: unknown. */
static int64_t own_id_in_bpf(void)
{
	static const struct bpf_insn program[] = {
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_test_run_opts, run);
	AUTO_CLOSE int fd = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "underspan_pid", "GPL",
					  program, ARRAY_SIZE(program), NULL);

	return fd < 0 || bpf_prog_test_run_opts(fd, &run) ? -1 : (int64_t)run.retval;
}

static bool is_initial_pid_namespace(void)
{
	enum { INITIAL = 0xEFFFFFFC }; /* PROC_PID_INIT_INO, equal on all kernels */
	struct stat st;

	/* without "self", /proc belongs to a different namespace: unknown */
	return stat("/proc/self/ns/pid", &st) || st.st_ino == (ino_t)(uint32_t)INITIAL;
}

/* Process id in the PID namespace of /proc; 0: /proc does not show this process. */
static uint32_t own_id_in_proc(void)
{
	char text[32];
	ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	return (uint32_t)strtoul(text, NULL, 10);
}

/*
 * A pid must mean the same process in BPF programs, in /proc and in system calls. In its own PID
 * namespace the agent would assign rows to the wrong processes.
 */
static int check_process_ids(struct why *why)
{
	int64_t id = own_id_in_bpf();
	uint32_t own = (uint32_t)getpid();

	if ((id >= 0 && id != gettid()) || !is_initial_pid_namespace())
		return why_fail(
			why, ENOTSUP,
			"underspan runs in a PID namespace of its own, where process ids differ "
			"from the kernel's events%s: start underspan in the host's PID "
			"namespace (hostPID: true in Kubernetes, --pid=host in Docker)",
			own_id_in_proc() != own ? " (the host's /proc alone is not enough)" : "");
	if (own_id_in_proc() != own)
		return why_fail(
			why, ENOTSUP,
			"/proc belongs to a different PID namespace than underspan: mount the "
			"host's /proc (mount -t proc proc /proc)");
	return 0;
}

/* Is this process in a time namespace whose clocks differ from the kernel's? */
static bool has_clocks_of_its_own(void)
{
	enum { INITIAL = 0xEFFFFFFA }; /* PROC_TIME_INIT_INO, equal on all kernels since 5.6 */
	long long seconds, nanoseconds;
	AUTO_FCLOSE FILE *f = fopen("/proc/self/timens_offsets", "re");
	bool differ = false;
	struct stat st;

	if (!f || stat("/proc/self/ns/time", &st) || st.st_ino == (ino_t)(uint32_t)INITIAL)
		return false;
	while (fscanf(f, "%*s %lld %lld", &seconds, &nanoseconds) == 2)
		differ = differ || seconds || nanoseconds;
	return differ;
}

/* The kernel's events have the host's monotonic clock: rows would have wrong times. */
static int check_clocks(struct why *why)
{
	if (!has_clocks_of_its_own())
		return 0;
	return why_fail(why, ENOTSUP,
			"underspan runs in a time namespace with clocks of its own, which differ "
			"from those of the kernel's events: start underspan in the host's time "
			"namespace (without timeOffsets of the container's runtime)");
}

int kernel_check(struct why *why)
{
	int err = check_capabilities(why);

	if (!err && access("/sys/kernel/btf/vmlinux", R_OK))
		err = why_fail(why, ENOTSUP,
			       "no /sys/kernel/btf/vmlinux: underspan needs a kernel built with "
			       "CONFIG_DEBUG_INFO_BTF (5.10 or later), and /sys mounted");
	if (!err)
		err = check_lockdown(why);
	if (!err)
		err = check_clocks(why);
	return err ? err : check_process_ids(why);
}
