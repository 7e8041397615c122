// SPDX-License-Identifier: Apache-2.0
/* Tracefs, mounted or not. See tracefs.h. */
#include "host/tracefs.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/kernel.h"

/* the two paths tried by libbpf */
static const char *const roots[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };

enum { UNTRIED = -2, REFUSED = -1 };
static _Atomic int own_mount = UNTRIED;

/* Since 5.2. A detached mount: gone with the last descriptor, also after a crash of the agent. */
static int make_mount(void)
{
	int fs = (int)syscall(SYS_fsopen, "tracefs", FSOPEN_CLOEXEC), mount = REFUSED;

	if (fs < 0)
		return REFUSED;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		mount = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
				     MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					     MOUNT_ATTR_NOEXEC);
	close(fs);
	return mount < 0 ? REFUSED : mount;
}

bool tracefs_private(void)
{
	int untried = UNTRIED, mount;

	if (own_mount == UNTRIED) {
		mount = make_mount();
		if (!atomic_compare_exchange_strong(&own_mount, &untried, mount) && mount >= 0)
			close(mount);
	}
	return own_mount >= 0;
}

static int open_visible(const char *below, int flags)
{
	char path[256];
	int fd = -1;

	for (size_t i = 0; fd < 0 && i < ARRAY_SIZE(roots); i++) {
		snprintf(path, sizeof(path), "%s/%s", roots[i], below);
		fd = open(path, flags | O_CLOEXEC);
	}
	return fd;
}

static int open_any(const char *below, int flags)
{
	int fd = open_visible(below, flags);

	if (fd < 0 && kernel_has("private_tracefs"))
		fd = openat(own_mount, below, flags | O_CLOEXEC);
	return fd;
}

bool tracefs_has(const char *below)
{
	AUTO_CLOSE int fd = open_any(below, O_PATH);

	return fd >= 0;
}

static int event_open(uint32_t type, uint64_t config)
{
	struct perf_event_attr attr = { .type = type, .size = sizeof(attr), .config = config };
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int read_id(const char *group, const char *name, uint64_t *ret)
{
	AUTO_FCLOSE FILE *id = NULL;
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "events/%s/%s/id", group, name);
	fd = open_any(path, O_RDONLY);
	if (fd < 0)
		return -errno;
	id = fdopen(fd, "r");
	if (!id) {
		close(fd);
		return -ENOMEM;
	}
	return fscanf(id, "%" SCNu64, ret) == 1 ? 0 : -EINVAL;
}

static int open_event(const char *group, const char *name)
{
	uint64_t id;
	int err = read_id(group, name, &id);

	return err ? err : event_open(PERF_TYPE_TRACEPOINT, id);
}

/*
 * Some distributions' kernels require more than CAP_PERFMON: see kernel_perf_needs_admin(). The
 * answer is the same for every event, and closing one of a tracepoint takes a grace period of RCU.
 */
static bool may_open_events(void)
{
	AUTO_CLOSE int fd = event_open(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);

	return fd >= 0;
}

bool tracefs_has_tracepoint(const char *group, const char *name)
{
	uint64_t id;

	return read_id(group, name, &id) == 0 && may_open_events();
}

/* "tracepoint/GROUP/NAME" */
static int attach_program(struct bpf_program *program, struct bpf_link **ret, struct why *why)
{
	const char *section = bpf_program__section_name(program);
	char group[64], name[64];
	int fd;

	section += *section == '?';
	if (sscanf(section, "tracepoint/%63[^/]/%63s", group, name) != 2)
		return 0;
	fd = open_event(group, name);
	if (fd < 0)
		return why_fail(why, -fd, "cannot open the tracepoint %s: %s", name, strerror(-fd));
	*ret = bpf_program__attach_perf_event(program, fd); /* takes the descriptor */
	if (*ret)
		return 0;
	fd = errno;
	return why_fail(why, fd, "cannot attach to the tracepoint %s: %s", name, strerror(fd));
}

int tracefs_attach_program(struct bpf_program *program, struct bpf_link **ret, struct why *why)
{
	AUTO_CLOSE int visible = open_visible("events", O_PATH);

	return visible < 0 ? attach_program(program, ret, why) : 0;
}

int tracefs_attach(struct bpf_object_skeleton *skeleton, struct why *why)
{
	AUTO_CLOSE int visible = open_visible("events", O_PATH);
	int err = 0;

	for (int i = 0; visible < 0 && !err && i < skeleton->prog_cnt; i++) {
		struct bpf_program *program = *skeleton->progs[i].prog;

		if (bpf_program__autoload(program) && bpf_program__autoattach(program))
			err = attach_program(program, skeleton->progs[i].link, why);
	}
	return err;
}
