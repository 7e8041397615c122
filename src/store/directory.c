// SPDX-License-Identifier: Apache-2.0
/* The store's directory on disk. See directory.h. */
#include "store/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "store/directory_files.h"

static const char marker[] = "underspan-store", fresh_marker[] = "underspan-store.new",
		  marker_text[] = "underspan store 2\n";

/* ---- opening ---- */

/* The name of any entry; "": empty, but for a marker whose writer was killed. */
static int first_entry(int fd, char *ret_name, size_t size)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	*ret_name = '\0';
	if (!entries)
		return -errno;
	while (!*ret_name && (e = readdir(entries))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    strcmp(e->d_name, fresh_marker) != 0)
			snprintf(ret_name, size, "%s", e->d_name);
	}
	closedir(entries);
	return 0;
}

static const char *fix_of(int err)
{
	return err == ENOENT		       ? ": make the directory above it first"
	       : err == EACCES || err == EPERM ? ": run as root, or as the user to whom it belongs"
	       : err == EROFS		       ? ": name a directory on a disk that can be written"
					       : "";
}

static int open_path(const char *path, bool make, int *ret_fd, struct why *why)
{
	char plain[PATH_MAX];
	size_t len = (size_t)snprintf(plain, sizeof(plain), "%s", path);

	if (!*path || len >= sizeof(plain))
		return why_fail(why, EINVAL,
				"the store's directory: the name is empty or too long");
	/* a trailing slash would follow a link */
	while (len > 1 && plain[len - 1] == '/')
		plain[--len] = '\0';
	if (make && mkdir(plain, 0700) < 0 && errno != EEXIST)
		return why_fail(why, errno, "cannot make the store's directory %s: %s%s", path,
				strerror(errno), fix_of(errno));
	*ret_fd = open(plain, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd >= 0)
		return 0;
	if (errno == ENOENT)
		return why_fail(why, ENOENT,
				"no store at %s; start a store with: underspan run --store=%s",
				path, path);
	if (errno == ENOTDIR || errno == ELOOP)
		return why_fail(why, ENOTDIR,
				"%s is a file or a link, but the store needs a directory: name the "
				"directory",
				path);
	return why_fail(why, errno, "cannot open the store's directory %s: %s%s", path,
			strerror(errno), fix_of(errno));
}

static int check(const struct store_directory *d, bool make, struct why *why);

/* Several processes that start at once write in turn. Not for ever: others may hold the lock. */
static int write_marker(const struct store_directory *d, struct why *why)
{
	enum { TRIES = 100, WAIT_US = 20000 };
	char entry[NAME_MAX + 1];
	int err;

	for (int i = 0; i < TRIES && flock(d->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	     i++)
		usleep(WAIT_US);
	err = first_entry(d->fd, entry, sizeof(entry));
	if (!err && !*entry)
		err = store_file_write(d->fd, marker, marker_text);
	flock(d->fd, LOCK_UN);
	if (err)
		return why_fail(why, -err, "cannot write in %s: %s", d->path, strerror(-err));
	return check(d, false, why);
}

/* Turns an empty directory into a store by writing the marker. */
static int begin_empty(const struct store_directory *d, const struct stat *st, bool make,
		       struct why *why)
{
	if (!make)
		return why_fail(
			why, ENOENT,
			"no store at %s, the directory is empty; start a store with: underspan "
			"run --store=%s",
			d->path, d->path);
	if (st->st_uid != geteuid())
		return why_fail(
			why, EINVAL,
			"%s belongs to another user (uid %u): start the store as the owner, or "
			"name a new directory",
			d->path, (unsigned int)st->st_uid);
	/* as /tmp and /dev/shm: nobody should change its mode */
	if (st->st_mode & 022 && st->st_mode & S_ISVTX)
		return why_fail(why, EINVAL,
				"%s is a directory for all users: name a new one, as %s/underspan",
				d->path, d->path);
	if (st->st_mode & 022)
		return why_fail(
			why, EINVAL,
			"%s is open to other users for writing: chmod go-w %s, or name a new "
			"directory",
			d->path, d->path);
	return write_marker(d, why);
}

static int refuse(const struct store_directory *d, const char *entry, bool make, struct why *why)
{
	return why_fail(
		why, EINVAL,
		"%s is not an underspan store: the directory holds '%.60s', and no file %s of "
		"the owner; nothing was changed. Name %s",
		d->path, entry, marker,
		make ? "a new or empty directory" : "the directory of a store");
}

/* Two engines, each with rows: the owner has to choose. */
static int refuse_old_again(const struct store_directory *d, struct why *why)
{
	return why_fail(
		why, EINVAL,
		"an earlier version of underspan ran on %s and created a second engine: move "
		"the rows of the earlier version to a separate store (cd %s && mkdir -m 700 "
		"OTHER && cp -p password OTHER && mv data metadata store tmp OTHER && chown %u "
		". lock password %s)",
		d->path, d->path, (unsigned int)geteuid(), marker);
}

static int check(const struct store_directory *d, bool make, struct why *why)
{
	char text[sizeof(marker_text) + 1], entry[NAME_MAX + 1];
	struct stat st;
	int err;

	if (fstat(d->fd, &st) < 0)
		return why_fail(why, errno, "cannot look at %s: %s", d->path, strerror(errno));
	err = first_entry(d->fd, entry, sizeof(entry));
	if (err)
		return why_fail(why, -err, "cannot read %s: %s", d->path, strerror(-err));
	if (!*entry)
		return begin_empty(d, &st, make, why);
	err = store_file_read(d->fd, marker, st.st_uid, text, sizeof(text));
	if (err == -ENOENT && store_is_old(d->fd, &st))
		return store_rearrange(d, &st, why) ?: check(d, false, why);
	if (err || strcmp(text, marker_text) != 0)
		return refuse(d, entry, make, why);
	if (store_was_old_again(d->fd))
		return refuse_old_again(d, why);
	if (st.st_uid != geteuid())
		return why_fail(
			why, EINVAL,
			"the store %s belongs to another user (uid %u): run the query as the owner",
			d->path, (unsigned int)st.st_uid);
	if (st.st_mode & 022)
		return why_fail(why, EINVAL,
				"the store %s is open to other users for writing: chmod go-w %s",
				d->path, d->path);
	return 0;
}

int store_directory_mark(const struct store_directory *d)
{
	return store_file_write(d->fd, marker, marker_text);
}

int store_directory_open(const char *path, bool make, struct store_directory *ret_directory,
			 struct why *why)
{
	struct store_directory d = { .fd = -1, .path = path };
	int err = open_path(path, make, &d.fd, why);

	if (!err)
		err = check(&d, make, why);
	if (err) {
		store_directory_close(&d);
		return err;
	}
	*ret_directory = d;
	return 0;
}

/* DIR is to be made. */
static int check_above(const char *path, struct why *why)
{
	AUTO_FREE char *copy = strdup(path);

	if (!copy || access(dirname(copy), W_OK | X_OK) == 0)
		return 0;
	return why_fail(why, errno, "cannot make the store's directory %s: %s%s", path,
			strerror(errno), fix_of(errno));
}

int store_directory_check(const char *path, struct why *why)
{
	char text[sizeof(marker_text) + 1], entry[NAME_MAX + 1];
	struct store_directory d = { .fd = -1, .path = path };
	struct stat st;
	int err = open_path(path, false, &d.fd, why);

	if (err)
		return err == -ENOENT ? check_above(path, why) : err;
	if (fstat(d.fd, &st) == 0 && first_entry(d.fd, entry, sizeof(entry)) == 0 && *entry) {
		err = store_file_read(d.fd, marker, st.st_uid, text, sizeof(text));
		if (err == -ENOENT && store_is_old(d.fd, &st))
			err = 0;
		else if (err || strcmp(text, marker_text) != 0)
			err = refuse(&d, entry, true, why);
	}
	store_directory_close(&d);
	return err;
}

void store_directory_close(struct store_directory *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

/* ---- lock ---- */

int store_directory_lock(const struct store_directory *d, int *ret_fd, struct why *why)
{
	struct flock whole_file = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = store_file_open(d->fd, "lock", O_RDWR | O_CREAT, geteuid()), err;
	char pid[32] = "";
	ssize_t n;

	if (fd < 0)
		return store_file_fail(d->path, "lock", "open", fd, why);
	if (fcntl(fd, F_OFD_SETLK, &whole_file) < 0) {
		err = errno;
		n = pread(fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		close(fd);
		if (err != EAGAIN && err != EACCES)
			return why_fail(why, err, "cannot lock %s/lock: %s", d->path,
					strerror(err));
		return why_fail(why, EBUSY,
				"another store process serves %s already (pid %s): commands with "
				"--store=%s ask that one; name another directory for a second "
				"store",
				d->path, *pid ? pid : "unknown", d->path);
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	/* the pid is for people; a full disk must not prevent locking */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		errno = 0;
	*ret_fd = fd;
	return 0;
}

bool store_directory_is_locked(const struct store_directory *d)
{
	struct flock whole_file = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	/* tests the lock without taking it: a store starting now must not fail */
	AUTO_CLOSE int fd = store_file_open(d->fd, "lock", O_RDONLY, geteuid());

	return fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole_file) == 0 && whole_file.l_type != F_UNLCK;
}

/* ---- password ---- */

/* 62 letters and digits; bytes >= 248 are rejected to keep them equally likely */
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

int store_directory_password(const struct store_directory *d, bool make, char *ret_password,
			     struct why *why)
{
	char text[STORE_PASSWORD_LEN + 16];
	int err = store_file_read(d->fd, "password", geteuid(), text, sizeof(text));

	if (err == -ENOENT && make) {
		err = make_password(ret_password, why);
		if (err)
			return err;
		snprintf(text, sizeof(text), "%s\n", ret_password);
		err = store_file_write(d->fd, "password", text);
		return err ? store_file_fail(d->path, "password", "write", err, why) : 0;
	}
	if (err && err != -EBADMSG)
		return store_file_fail(d->path, "password", "read", err, why);
	text[strcspn(text, "\n")] = '\0';
	if (err || strlen(text) < STORE_PASSWORD_LEN)
		return why_fail(
			why, EBADMSG,
			"%s/password is damaged; remove the file, and the store creates a new "
			"password",
			d->path);
	memcpy(ret_password, text, STORE_PASSWORD_LEN);
	ret_password[STORE_PASSWORD_LEN] = '\0';
	return 0;
}

/* ---- endpoint ---- */

/* The second line of "endpoint" */
static const char passing[] = "passing\n";

int store_directory_publish(const struct store_directory *d, const char *url, struct why *why)
{
	char text[STORE_URL_MAX + sizeof(passing)];
	int err;

	snprintf(text, sizeof(text), "%s\n%s", url, d->passing ? passing : "");
	err = store_file_write(d->fd, "endpoint", text);
	return err ? store_file_fail(d->path, "endpoint", "write", err, why) : 0;
}

void store_directory_unpublish(const struct store_directory *d)
{
	unlinkat(d->fd, "endpoint", 0);
	unlinkat(d->fd, "socket", 0);
}

int store_directory_endpoint(const struct store_directory *d, char *ret_url, size_t size,
			     bool *ret_passing)
{
	char text[STORE_URL_MAX + sizeof(passing)], *end;
	int err = store_file_read(d->fd, "endpoint", geteuid(), text, sizeof(text));

	if (err)
		return err;
	end = strchr(text, '\n');
	*ret_passing = end && !strcmp(end + 1, passing);
	if (end)
		*end = '\0';
	return snprintf(ret_url, size, "%s", text) < (int)size ? 0 : -ENAMETOOLONG;
}

void store_directory_socket(const struct store_directory *d, char *ret_path, size_t size)
{
	snprintf(ret_path, size, "/proc/self/fd/%d/socket", d->fd);
}

int store_directory_listen(const struct store_directory *d, int *ret_fd, struct why *why)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
	mode_t mask = umask(0177);

	store_directory_socket(d, address.sun_path, sizeof(address.sun_path));
	unlinkat(d->fd, "socket", 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 128) < 0)
		err = errno;
	umask(mask);
	if (err) {
		if (fd >= 0)
			close(fd);
		return why_fail(why, err, "cannot listen on %s/socket: %s", d->path, strerror(err));
	}
	*ret_fd = fd;
	return 0;
}

/* ---- engine/ ---- */

const struct passwd *store_user(void)
{
	return getpwnam("underspan") ?: getpwnam("nobody");
}

/*
 * Children first, the directory last: until then it is owned by root with mode 0700, so no other
 * process has access.
 */
static int give_away(int fd, const struct passwd *user)
{
	char path[64];
	char *roots[] = { path, NULL };
	int err = 0;
	FTSENT *e;
	FTS *walk;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/.", fd);
	walk = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
	if (!walk)
		return -errno;
	while (!err && (e = fts_read(walk))) {
		if (e->fts_info != FTS_D && e->fts_level > 0 &&
		    lchown(e->fts_path, user->pw_uid, user->pw_gid) < 0)
			err = -errno;
	}
	fts_close(walk);
	return err ?: fchown(fd, user->pw_uid, user->pw_gid) < 0 ? -errno : 0;
}

int store_directory_engine(const struct store_directory *d, int *ret_fd, struct why *why)
{
	const struct passwd *user;
	struct stat st;
	int fd, err = 0;

	if (mkdirat(d->fd, "engine", 0700) < 0 && errno != EEXIST)
		return why_fail(why, errno, "cannot make %s/engine: %s", d->path, strerror(errno));
	fd = openat(d->fd, "engine", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		err = why_fail(why, errno, "cannot open %s/engine: %s", d->path, strerror(errno));
	} else if (geteuid() == 0 && st.st_uid == 0) {
		user = store_user();
		if (!user)
			err = why_fail(
				why, ENOENT,
				"cannot run the store unprivileged: create the user underspan");
		else if ((err = give_away(fd, user)) < 0)
			why_fail(why, -err, "cannot give %s/engine to user %s: %s", d->path,
				 user->pw_name, strerror(-err));
	}
	if (err) {
		if (fd >= 0)
			close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}
