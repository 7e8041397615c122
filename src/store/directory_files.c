// SPDX-License-Identifier: Apache-2.0
/* Safe access to the files of a store's directory. See directory_files.h. */
#include "store/directory_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int store_file_open(int directory, const char *name, int flags, uid_t owner)
{
	int fd = openat(directory, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == owner &&
	    !(st.st_mode & 022))
		return fd;
	close(fd);
	return -EPERM;
}

int store_file_read(int directory, const char *name, uid_t owner, char *buf, size_t size)
{
	AUTO_CLOSE int fd = store_file_open(directory, name, O_RDONLY, owner);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return strlen(buf) == (size_t)n ? 0 : -EBADMSG;
}

int store_file_write(int directory, const char *name, const char *text)
{
	size_t len = strlen(text);
	char fresh[64];
	int fd, err = 0;

	snprintf(fresh, sizeof(fresh), "%s.new", name);
	unlinkat(directory, fresh, 0);
	fd = openat(directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	errno = ENOSPC; /* reason of a short write */
	if (write(fd, text, len) != (ssize_t)len || fsync(fd) < 0)
		err = errno;
	if (close(fd) < 0 && !err)
		err = errno;
	if (!err && renameat(directory, fresh, directory, name) < 0)
		err = errno;
	if (err)
		unlinkat(directory, fresh, 0);
	return -err;
}

int store_file_fail(const char *directory, const char *name, const char *doing, int err,
		    struct why *why)
{
	if (err == -EPERM || err == -ELOOP)
		return why_fail(why, EINVAL,
				"%s/%s is a link, not a regular file, owned by another user, or "
				"writable by other users: not made by the store; remove the file",
				directory, name);
	return why_fail(why, -err, "cannot %s %s/%s: %s", doing, directory, name, strerror(-err));
}
