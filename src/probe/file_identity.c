// SPDX-License-Identifier: Apache-2.0
/* Which file it is. See file_identity.h. */
#include "probe/file_identity.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "util.h"

enum { MAX_MOUNTS = 20000, LINE_MAX_BYTES = 4096 + 128, TYPE_MAX = 32 };

static int look(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID,
		     ret)
		       ? -errno
		       : 0;
}

/* The type of the file system mounted there. False: it is not among this process's mounts. */
static bool find_type(uint64_t mount_id, uint32_t pid, char ret[TYPE_MAX])
{
	AUTO_FCLOSE FILE *f = NULL;
	char line[LINE_MAX_BYTES], name[64] = "/proc/self/mountinfo";
	unsigned int id;

	if (pid)
		snprintf(name, sizeof(name), "/proc/%u/mountinfo", pid);
	f = fopen(name, "re");
	for (int i = 0; f && i < MAX_MOUNTS && fgets(line, sizeof(line), f); i++) {
		const char *type = strstr(line, " - ");

		if (sscanf(line, "%u", &id) != 1 || id != mount_id)
			continue;
		snprintf(ret, TYPE_MAX, "%s", type ? type + 3 : "");
		ret[strcspn(ret, " \n")] = '\0';
		return true;
	}
	return false;
}

/* "" for what is on a block device, and for a mount outside of its root: none of its own making. */
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
	int err = look(fd, &st);

	if (err)
		return err;
	type_of(&st, pid, type);
	return is_served(type) ? -ENOTSUP : 0;
}
