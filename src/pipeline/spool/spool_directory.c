// SPDX-License-Identifier: Apache-2.0
/* Creates, opens and locks the spool's directory. See spool_directory.h. */
#include "pipeline/spool/spool_directory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_directory(const char *path)
{
	AUTO_FREE char *copy = strdup(path);
	int err;

	if (!copy)
		return -ENOMEM;
	for (char *p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		err = mkdir(copy, 0755) ? -errno : 0;
		if (err && access(copy, F_OK))
			return err;
		*p = '/';
	}
	return mkdir(copy, 0700) && errno != EEXIST ? -errno : 0;
}

int spool_directory_open(const char *path, int *ret_dir, struct why *why)
{
	int err, dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 && errno == ENOENT) {
		err = make_directory(path);
		if (err)
			return why_fail(why, -err, "spool.directory: cannot make %s: %s", path,
					strerror(-err));
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (dir < 0)
		return why_fail(why, errno, "spool.directory: cannot open %s: %s", path,
				strerror(errno));
	/* lock on the directory itself: works on a read-only disk and without a lock file */
	if (flock(dir, LOCK_EX | LOCK_NB)) {
		err = errno == EWOULDBLOCK ? EBUSY : errno;
		close(dir);
		return err == EBUSY
			       ? why_fail(why, EBUSY,
					  "spool.directory: %s is in use by another underspan; "
					  "use one directory per agent",
					  path)
			       : why_fail(why, err, "spool.directory: cannot lock %s: %s", path,
					  strerror(err));
	}
	*ret_dir = dir;
	return 0;
}
