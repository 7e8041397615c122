// SPDX-License-Identifier: Apache-2.0
/* Identity of files. See file_identity.h. */
#include "host/file_identity.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/util.h"

enum { TYPE_MAX = 32 };

static int look(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID,
		     ret)
		       ? -errno
		       : 0;
}

/* Type of the mounted file system. False: not among the mounts of this process. */
static bool find_type(uint64_t mount_id, uint32_t pid, char ret[TYPE_MAX])
{
	char name[64] = "/proc/self/mountinfo";
	AUTO_FCLOSE FILE *f = NULL;
	AUTO_FREE char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (pid)
		snprintf(name, sizeof(name), "/proc/%u/mountinfo", pid);
	f = fopen(name, "re");
	while (f && !found && getline(&line, &size, f) > 0) {
		const char *type = strstr(line, " - ");

		if (strtoull(line, NULL, 10) != mount_id)
			continue;
		snprintf(ret, TYPE_MAX, "%s", type ? type + 3 : "");
		ret[strcspn(ret, " \n")] = '\0';
		found = true;
	}
	return found;
}

/*
 * "" for files on a block device, and for file systems in neither mount table: internal to the
 * kernel, or detached. file_check_served() asks such file systems directly.
 */
static void type_of(const struct statx *st, uint32_t pid, char ret[TYPE_MAX])
{
	ret[0] = '\0';
	if (st->stx_dev_major || find_type(st->stx_mnt_id, pid, ret) || !pid)
		return;
	find_type(st->stx_mnt_id, 0, ret);
}

static bool is_served(const char *type)
{
	return !strncmp(type, "fuse", 4);
}

static uint64_t ns_of(const struct statx_timestamp *t)
{
	return (uint64_t)t->tv_sec * NSEC_PER_SEC + t->tv_nsec;
}

int file_identify(int fd, uint32_t pid, struct file_identity *ret)
{
	char type[TYPE_MAX];
	struct statx st;
	int err = look(fd, &st);

	if (err)
		return err;
	if (!S_ISREG(st.stx_mode))
		return -EINVAL;
	type_of(&st, pid, type);
	if (ret) {
		/* hashed as bytes: no hole may hold garbage */
		memset(ret, 0, sizeof(*ret));
		ret->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
		ret->ino = st.stx_ino;
		ret->size = st.stx_size;
		ret->mtime_ns = ns_of(&st.stx_mtime);
		if (!strcmp(type, "overlay"))
			ret->overlay_ctime_ns = ns_of(&st.stx_ctime);
	}
	return is_served(type) ? -ENOTSUP : 0;
}

int file_check_served(int fd, uint32_t pid)
{
	char type[TYPE_MAX];
	struct statx st;
	struct statfs fs;
	int err = look(fd, &st);

	if (err)
		return err;
	type_of(&st, pid, type);
	/* asks the file system, which may not answer: last, and in a reader process */
	if (is_served(type) || fstatfs(fd, &fs) || fs.f_type == FUSE_SUPER_MAGIC)
		return -ENOTSUP;
	return 0;
}

/* The kernel asks the file system of the lowest layer; FUSE cannot answer. */
static bool has_known_blocks(int fd)
{
	struct fiemap map = { .fm_length = 1 };

	return !ioctl(fd, FS_IOC_FIEMAP, &map);
}

/* Does the mount namespace of the process belong to the agent's user namespace? */
static bool is_in_roots_mounts(uint32_t pid)
{
	AUTO_CLOSE int mounts = -1, owner = -1;
	struct stat of_mounts, own;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/ns/mnt", pid);
	mounts = open(path, O_RDONLY | O_CLOEXEC);
	owner = mounts < 0 ? -1 : ioctl(mounts, NS_GET_USERNS);
	return owner >= 0 && !fstat(owner, &of_mounts) && !stat("/proc/self/ns/user", &own) &&
	       of_mounts.st_dev == own.st_dev && of_mounts.st_ino == own.st_ino;
}

static bool was_mounted_by_root(int fd, uint32_t pid)
{
	char type[TYPE_MAX];
	struct statx st;

	if (look(fd, &st))
		return false;
	return find_type(st.stx_mnt_id, 0, type) ||
	       (is_in_roots_mounts(pid) && find_type(st.stx_mnt_id, pid, type));
}

int file_check_below(int fd, uint32_t pid, bool *ret_unsure)
{
	struct statfs fs;

	*ret_unsure = false;
	if (fstatfs(fd, &fs))
		return -errno;
	if (fs.f_type != OVERLAYFS_SUPER_MAGIC || has_known_blocks(fd))
		return 0;
	*ret_unsure = true;
	return was_mounted_by_root(fd, pid) ? 0 : -ENOTSUP;
}
