// SPDX-License-Identifier: Apache-2.0
/* The store's directory on disk. See directory.h. */
#include "store/directory.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static int join(char *buf, const char *path, const char *name, struct why *why)
{
	if (snprintf(buf, PATH_MAX, "%s/%s", path, name) >= PATH_MAX)
		return why_fail(why, ENAMETOOLONG, "the store's path is too long");
	return 0;
}

int store_directory_make(const char *path, struct why *why)
{
	struct stat st;

	if (mkdir(path, 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return why_fail(why, errno, "cannot make the store's directory %s: %s", path,
				strerror(errno));
	if (stat(path, &st) < 0)
		return why_fail(why, errno, "cannot look at the store's directory %s: %s", path,
				strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return why_fail(why, ENOTDIR, "%s is a file, the store needs a directory", path);
	/* a directory that others can enter would show them the tables */
	if ((st.st_mode & 077) && chmod(path, 0700) < 0)
		return why_fail(why, errno,
				"%s is open to other users and cannot be closed to them: %s", path,
				strerror(errno));
	return 0;
}

int store_directory_lock(const char *path, int *ret_fd, struct why *why)
{
	struct flock whole_file = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char file[PATH_MAX], pid[32] = "";
	ssize_t n;
	int fd, err;

	err = join(file, path, "lock", why);
	if (err)
		return err;
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return why_fail(why, errno, "cannot open %s: %s", file, strerror(errno));
	if (fcntl(fd, F_OFD_SETLK, &whole_file) < 0) {
		err = errno;
		n = pread(fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		close(fd);
		if (err != EAGAIN && err != EACCES)
			return why_fail(why, err, "cannot lock %s: %s", file, strerror(err));
		return why_fail(why, EBUSY, "another store serves %s already (pid %s)", path,
				*pid ? pid : "unknown");
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	/* the pid only helps people; the lock is the lock (and a full disk must not keep us out) */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		errno = 0;
	*ret_fd = fd;
	return 0;
}

bool store_directory_is_locked(const char *path)
{
	struct flock whole_file = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char file[PATH_MAX];
	AUTO_CLOSE int fd = -1;

	if (join(file, path, "lock", NULL))
		return false;
	/* asks without taking it: a store that starts in this moment must not fail */
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole_file) == 0 && whole_file.l_type != F_UNLCK;
}

/* Writes `text` beside the file and moves it there when it is whole. */
static int write_whole(const char *file, const char *text, struct why *why)
{
	char fresh[PATH_MAX];
	size_t len = strlen(text);
	int fd, err = 0;

	if (snprintf(fresh, sizeof(fresh), "%s.new", file) >= (int)sizeof(fresh))
		return why_fail(why, ENAMETOOLONG, "the store's path is too long");
	unlink(fresh);
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return why_fail(why, errno, "cannot write %s: %s", file, strerror(errno));
	errno = ENOSPC; /* what a short write means */
	if (write(fd, text, len) != (ssize_t)len || fsync(fd) < 0)
		err = errno;
	if (close(fd) < 0 && !err)
		err = errno;
	if (!err && rename(fresh, file) < 0)
		err = errno;
	if (!err)
		return 0;
	unlink(fresh);
	return why_fail(why, err, "cannot write %s: %s", file, strerror(err));
}

static int read_text(const char *file, char *buf, size_t size)
{
	AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

/* 62 letters and digits: a byte of 248 and more would make some likelier than others */
static int make_password(char *ret_password, struct why *why)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = 0;

	while (n < STORE_PASSWORD_LEN) {
		unsigned char byte;

		if (getrandom(&byte, 1, 0) != 1)
			return why_fail(why, errno, "no random numbers from the kernel: %s",
					strerror(errno));
		if (byte < 248)
			ret_password[n++] = letters[byte % 62];
	}
	ret_password[n] = '\0';
	return 0;
}

int store_directory_password(const char *path, bool make, char *ret_password, struct why *why)
{
	char file[PATH_MAX], text[STORE_PASSWORD_LEN + 16];
	int err;

	err = join(file, path, "password", why);
	if (err)
		return err;
	err = read_text(file, text, sizeof(text));
	if (err == -ENOENT && make) {
		err = make_password(ret_password, why);
		if (err)
			return err;
		snprintf(text, sizeof(text), "%s\n", ret_password);
		return write_whole(file, text, why);
	}
	if (err)
		return why_fail(why, -err, "cannot read the store's password %s: %s", file,
				strerror(-err));
	text[strcspn(text, "\n")] = '\0';
	if (strlen(text) < STORE_PASSWORD_LEN)
		return why_fail(why, EBADMSG,
				"%s is damaged; remove it and the store makes a new password",
				file);
	memcpy(ret_password, text, STORE_PASSWORD_LEN);
	ret_password[STORE_PASSWORD_LEN] = '\0';
	return 0;
}

int store_directory_publish(const char *path, const char *url, struct why *why)
{
	char file[PATH_MAX], text[STORE_URL_MAX + 32];
	int err = join(file, path, "endpoint", why);

	if (err)
		return err;
	snprintf(text, sizeof(text), "%s\n%d\n", url, (int)getpid());
	return write_whole(file, text, why);
}

void store_directory_unpublish(const char *path)
{
	char file[PATH_MAX];

	if (join(file, path, "endpoint", NULL) == 0)
		unlink(file);
}

int store_directory_endpoint(const char *path, char *ret_url, size_t size, pid_t *ret_pid)
{
	char file[PATH_MAX], text[STORE_URL_MAX + 32];
	char *newline;
	int err = join(file, path, "endpoint", NULL);

	if (!err)
		err = read_text(file, text, sizeof(text));
	if (err)
		return err;
	newline = strchr(text, '\n');
	if (!newline)
		return -ENOENT;
	*newline = '\0';
	if (snprintf(ret_url, size, "%s", text) >= (int)size)
		return -ENAMETOOLONG;
	*ret_pid = (pid_t)strtol(newline + 1, NULL, 10);
	return 0;
}
