// SPDX-License-Identifier: Apache-2.0
/* From root to an unprivileged process. See confine.h. */
#include "store/confine.h"

#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/log.h"

/* linux/landlock.h of Debian 12 ends at ABI 2; the numbers are the kernel's interface. */
enum {
	LANDLOCK_ABI_TRUNCATE = 3, /* Linux 6.2 */
	LANDLOCK_ABI_TCP = 4,	   /* Linux 6.7 */
	LANDLOCK_ABI_SCOPE = 6,	   /* Linux 6.12 */
	LANDLOCK_RULE_BENEATH = 1,
	LANDLOCK_VERSION = 1,
};

enum {
	FS_EXECUTE = 1 << 0,
	FS_READ_FILE = 1 << 2,
	FS_READ = 1 << 2 | 1 << 3, /* files, directories */
	FS_ABI_1 = (1 << 13) - 1,
	FS_REFER = 1 << 13,
	FS_TRUNCATE = 1 << 14,
	NET_BIND_CONNECT = 1 << 0 | 1 << 1,
	SCOPE_ABSTRACT_SIGNAL = 1 << 0 | 1 << 1,
};

struct landlock_ruleset {
	uint64_t fs, net, scoped;
};

struct landlock_beneath {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));

/* Mount point for a directory that only root can reach, in a private mount namespace. */
static const char shown_at[] = "/mnt";

/* Whether a parent directory denies access to the user (mode bits only; other denials
 * fail later). */
static bool is_hidden(const char *path, uid_t uid, gid_t gid)
{
	char parent[PATH_MAX];
	struct stat st;

	snprintf(parent, sizeof(parent), "%s", path);
	while (strcmp(parent, "/") != 0) {
		mode_t need;

		dirname(parent);
		if (stat(parent, &st) < 0)
			return true;
		need = st.st_uid == uid ? S_IXUSR : st.st_gid == gid ? S_IXGRP : S_IXOTH;
		if (!(st.st_mode & need))
			return true;
	}
	return false;
}

static int show_directory(int engine, char *ret_path, size_t size, struct why *why)
{
	/* the working directory is valid in the new namespace, a descriptor is not */
	if (fchdir(engine) < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(".", shown_at, NULL, MS_BIND, NULL) < 0)
		return why_fail(
			why, errno,
			"the store's user cannot reach the directory: a parent directory is "
			"closed to other users, and a bind mount failed: %s",
			strerror(errno));
	snprintf(ret_path, size, "%s", shown_at);
	return 0;
}

static int drop_user(uid_t uid, gid_t gid, struct why *why)
{
	int death = 0;
	pid_t parent = getppid();

	prctl(PR_GET_PDEATHSIG, &death);
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return why_fail(why, errno, "cannot become an unprivileged user: %s",
				strerror(errno));
	/* cleared by the change of user */
	if (death && (prctl(PR_SET_PDEATHSIG, death) < 0 || getppid() != parent))
		return why_fail(why, ESRCH, "the process waiting for the store is gone");
	return 0;
}

static int drop_capabilities(struct why *why)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return why_fail(why, errno, "cannot renounce privileges: %s", strerror(errno));
	return 0;
}

/* A missing path is not needed. */
static void allow(int ruleset, int fd, uint64_t rights)
{
	struct landlock_beneath rule = { .allowed = rights, .fd = fd };

	if (fd >= 0)
		syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_BENEATH, &rule, 0);
}

static int confine_files(int engine, int library, bool is_program)
{
	static const char *const read[] = {
		"/proc", "/sys", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"
	};
	static const char *const loaders[] = { "/lib64/ld-linux-x86-64.so.2",
					       "/lib/ld-linux-aarch64.so.1" };
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/urandom",
					       "/dev/random" };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
	struct landlock_ruleset rules = { .fs = FS_ABI_1 };
	AUTO_CLOSE int ruleset = -1;
	size_t size = sizeof(rules.fs);

	if (abi < 1)
		return -ENOSYS;
	if (abi >= 2)
		rules.fs |= FS_REFER;
	if (abi >= LANDLOCK_ABI_TRUNCATE)
		rules.fs |= FS_TRUNCATE;
	if (abi >= LANDLOCK_ABI_TCP) {
		rules.net = NET_BIND_CONNECT;
		size += sizeof(rules.net);
	}
	if (abi >= LANDLOCK_ABI_SCOPE) {
		rules.scoped = SCOPE_ABSTRACT_SIGNAL;
		size += sizeof(rules.scoped);
	}
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
	if (ruleset < 0)
		return -errno;
	allow(ruleset, engine, rules.fs & ~1ULL); /* all rights but execute */
	allow(ruleset, library, is_program ? FS_EXECUTE | FS_READ_FILE : FS_READ_FILE);
	/* the loader is opened like the program */
	for (size_t i = 0; is_program && i < ARRAY_SIZE(loaders); i++) {
		AUTO_CLOSE int fd = open(loaders[i], O_PATH | O_CLOEXEC);

		allow(ruleset, fd, FS_EXECUTE | FS_READ_FILE);
	}
	for (size_t i = 0; i < ARRAY_SIZE(read); i++) {
		AUTO_CLOSE int fd = open(read[i], O_PATH | O_CLOEXEC);

		allow(ruleset, fd, FS_READ);
	}
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		AUTO_CLOSE int fd = open(devices[i], O_PATH | O_CLOEXEC);

		allow(ruleset, fd, 1 << 1 | 1 << 2);
	}
	return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}

/* As root: makes the directory reachable for the engine's user, and switches to that user. */
static int become_user(int engine, bool is_program, const struct stat *st, char *path, size_t size,
		       struct why *why)
{
	const struct passwd *user = getpwuid(st->st_uid);
	gid_t gid = user ? user->pw_gid : st->st_gid;
	int err = 0;

	if (is_hidden(path, st->st_uid, gid)) {
		err = show_directory(engine, path, size, why);
		/* a container without CAP_SYS_ADMIN: DIR is owned by root; search permission
		 * reveals no content */
		if (err == -EPERM && fchmodat(engine, "..", 0711, 0) == 0 &&
		    !is_hidden(path, st->st_uid, gid))
			err = 0;
	}
	/* EPERM without CAP_SETPCAP: few capabilities are left to drop then */
	/*
	 * Packages give clickhouse capabilities; the kernel does not start such a file where the
	 * bounding set lacks them. With no_new_privs it does, and gives none.
	 */
	for (int cap = 0; !err && !is_program && cap < 64; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	return err ?: drop_user(st->st_uid, gid, why);
}

int store_confine(int engine, int library, bool is_program, char *ret_path, size_t size,
		  struct why *why)
{
	char link[64];
	struct stat st;
	ssize_t n;
	int err = 0;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", engine);
	n = readlink(link, ret_path, size - 1);
	if (n <= 0 || fstat(engine, &st) < 0)
		return why_fail(why, errno, "cannot look at the engine's directory: %s",
				strerror(errno));
	ret_path[n] = '\0';
	if (geteuid() == 0)
		err = become_user(engine, is_program, &st, ret_path, size, why);
	if (!err)
		err = drop_capabilities(why);
	if (err)
		return err;
	/* the engine calls getcwd(), which the engine's user may not be allowed */
	if (chdir("/") < 0)
		return why_fail(why, errno, "cannot change to /: %s", strerror(errno));
	err = confine_files(engine, library, is_program);
	if (err)
		log_debug("store: no Landlock: %s", strerror(-err));
	return 0;
}
