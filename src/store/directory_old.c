// SPDX-License-Identifier: Apache-2.0
/*
 * Migration of stores of version 0.x, without a marker: the engine's files are in DIR itself,
 * beside lock, password and endpoint, and all files are owned by the engine's user. Exactly this
 * layout is recognized.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "store/directory_files.h"
#include "store/directory.h"

static bool is_among(const char *name, const char *const *names)
{
	for (; *names; names++) {
		if (!strcmp(name, *names))
			return true;
	}
	return false;
}

static bool is_own_file(const char *name)
{
	static const char *const names[] = { "lock",
					     "password",
					     "endpoint",
					     "password.new",
					     "endpoint.new",
					     "underspan-store.new",
					     NULL };

	return is_among(name, names);
}

/* Directories created by the engine; "engine": left by an interrupted migration. */
static bool is_engine_directory(const char *name)
{
	static const char *const names[] = { "data",
					     "metadata",
					     "metadata_dropped",
					     "store",
					     "tmp",
					     "disks",
					     "flags",
					     "shadow",
					     "user_defined",
					     "user_files",
					     "format_schemas",
					     "access",
					     "workload",
					     "named_collections",
					     "user_scripts",
					     "preprocessed_configs",
					     NULL };

	return is_among(name, names);
}

/* "status": left by a killed engine */
static bool is_engine_file(const char *name)
{
	return !strcmp(name, "status") || !strcmp(name, "uuid");
}

static bool is_password(int fd, uid_t owner)
{
	char text[STORE_PASSWORD_LEN + 3];

	return store_file_read(fd, "password", owner, text, sizeof(text)) == 0 &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") ==
		       STORE_PASSWORD_LEN &&
	       !strcmp(text + STORE_PASSWORD_LEN, "\n");
}

static bool is_known_entry(int fd, const char *name)
{
	struct stat st;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	if (is_own_file(name) || is_engine_file(name))
		return S_ISREG(st.st_mode) && st.st_nlink == 1;
	return S_ISDIR(st.st_mode) && (is_engine_directory(name) || !strcmp(name, "engine"));
}

/* Calls `each` for every entry; stops at the first error. */
static int for_entries(int fd, int (*each)(int fd, const char *name, void *context), void *context)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *entries = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!entries)
		return -errno;
	while (!err && (e = readdir(entries))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			err = each(fd, e->d_name, context);
	}
	closedir(entries);
	return err;
}

static int refuse_unknown(int fd, const char *name, void *context)
{
	(void)context;
	return is_known_entry(fd, name) ? 0 : -EEXIST;
}

/* The expected owner of a file of the old layout: DIR's owner, or root during the migration. */
static uid_t password_owner(int fd, const struct stat *st)
{
	struct stat password;

	return fstatat(fd, "password", &password, AT_SYMLINK_NOFOLLOW) == 0 ? password.st_uid
									    : st->st_uid;
}

static bool is_ours(uid_t uid)
{
	const struct passwd *user = geteuid() == 0 ? store_user() : NULL;

	return uid == geteuid() || (user && uid == user->pw_uid);
}

bool store_is_old(int fd, const struct stat *st)
{
	uid_t owner = password_owner(fd, st);
	struct stat metadata;

	return is_ours(st->st_uid) && is_ours(owner) && !(st->st_mode & 077) &&
	       is_password(fd, owner) &&
	       (fstatat(fd, "metadata", &metadata, AT_SYMLINK_NOFOLLOW) == 0 ||
		fstatat(fd, "engine", &metadata, AT_SYMLINK_NOFOLLOW) == 0) &&
	       for_entries(fd, refuse_unknown, NULL) == 0;
}

/* Fails if a store of version 0.x is running; the descriptor prevents a start. */
static int lock_old(const struct store_directory *d, uid_t owner, int *ret_fd, struct why *why)
{
	struct flock whole_file = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	*ret_fd = store_file_open(d->fd, "lock", O_RDWR, owner);
	if (*ret_fd == -ENOENT)
		return 0;
	if (*ret_fd < 0)
		return why_fail(why, -*ret_fd, "cannot open %s/lock: %s", d->path,
				strerror(-*ret_fd));
	if (fcntl(*ret_fd, F_OFD_SETLK, &whole_file) == 0)
		return 0;
	close(*ret_fd);
	*ret_fd = -1;
	return why_fail(
		why, EBUSY,
		"%s is served by an earlier version of underspan (pid: see %s/lock): stop the "
		"earlier version first",
		d->path, d->path);
}

static int move_entry(int fd, const char *name, void *context)
{
	const int *engine = context;

	if (!is_engine_directory(name) && !is_engine_file(name))
		return 0;
	return renameat(fd, name, *engine, name) < 0 ? -errno : 0;
}

static int move(const struct store_directory *d, uid_t owner, const char *password)
{
	static const char *const rest[] = { "lock", "endpoint", "endpoint.new", "password.new" };
	AUTO_CLOSE int engine = -1;
	struct stat st;
	int err;

	if (mkdirat(d->fd, "engine", 0700) < 0 && errno != EEXIST)
		return -errno;
	engine = openat(d->fd, "engine", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (engine < 0 || fstat(engine, &st) < 0)
		return -errno;
	err = for_entries(d->fd, move_entry, &engine);
	/* the entries are owned by that user already */
	if (!err && st.st_uid == geteuid() && fchown(engine, owner, (gid_t)-1) < 0)
		err = -errno;
	/* a new file, since another process may hold the old file open */
	if (!err)
		err = store_file_write(d->fd, "password", password);
	for (size_t i = 0; !err && i < ARRAY_SIZE(rest); i++) {
		if (unlinkat(d->fd, rest[i], 0) < 0 && errno != ENOENT)
			err = -errno;
	}
	if (!err)
		err = store_directory_mark(d);
	return err;
}

bool store_was_old_again(int fd)
{
	struct stat st;

	return fstatat(fd, "metadata", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

int store_rearrange(const struct store_directory *d, const struct stat *st, struct why *why)
{
	char password[STORE_PASSWORD_LEN + 3];
	uid_t owner = password_owner(d->fd, st);
	AUTO_CLOSE int lock = -1;
	int err = lock_old(d, owner, &lock, why);

	if (err)
		return err;
	/* from here on the engine's user cannot change DIR: check again */
	if (st->st_uid != geteuid() && fchown(d->fd, geteuid(), (gid_t)-1) < 0)
		err = -errno;
	if (!err && !store_is_old(d->fd, st))
		err = -EBUSY;
	if (!err)
		err = store_file_read(d->fd, "password", owner, password, sizeof(password));
	if (!err)
		err = move(d, owner, password);
	explicit_bzero(password, sizeof(password));
	return err ? why_fail(why, -err, "cannot rearrange %s, a store of an earlier version: %s",
			      d->path, strerror(-err))
		   : 0;
}
