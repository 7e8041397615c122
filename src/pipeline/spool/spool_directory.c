// SPDX-License-Identifier: Apache-2.0
/* Creates, opens, locks and lists the spool's directory. See spool_directory.h. */
#include "pipeline/spool/spool_directory.h"

#include <dirent.h>
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

static const char fix[] = ": name a directory on a disk that this user may write to";

int spool_directory_check(const char *path, struct why *why)
{
	AUTO_FREE char *there = NULL;
	struct stat st;
	char *slash;

	if (asprintf(&there, "%s%s", *path == '/' ? "" : "./", path) < 0)
		return why_fail(why, ENOMEM, "out of memory");
	while (stat(there, &st)) {
		slash = errno == ENOENT ? strrchr(there, '/') : NULL;
		if (!slash)
			return why_fail(why, errno, "spool.directory: %s: %s%s", path,
					strerror(errno), fix);
		*(slash == there ? slash + 1 : slash) = '\0';
	}
	if (!S_ISDIR(st.st_mode))
		return why_fail(why, ENOTDIR, "spool.directory: %s is not a directory%s", there,
				fix);
	if (access(there, W_OK | X_OK))
		return why_fail(why, errno, "spool.directory: cannot write to %s: %s%s", there,
				strerror(errno), fix);
	return 0;
}

int spool_directory_open(const char *path, int *ret_dir, struct why *why)
{
	int err, dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 && errno == ENOENT) {
		err = make_directory(path);
		if (err)
			return why_fail(why, -err, "spool.directory: cannot make %s: %s%s", path,
					strerror(-err), fix);
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (dir < 0)
		return why_fail(why, errno, "spool.directory: cannot open %s: %s%s", path,
				strerror(errno), fix);
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

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Removes the suffix. */
static bool take_suffix(char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);
	bool there = n > m && !strcmp(s + n - m, suffix);

	if (there)
		s[n - m] = '\0';
	return there;
}

void spool_unfinished_name(const char *name, char ret[SPOOL_NAME_MAX + 4])
{
	snprintf(ret, SPOOL_NAME_MAX + 4, "%s.tmp", name);
}

static void remove_unfinished(int dir, const char *name)
{
	char text[SPOOL_NAME_MAX + 4];

	spool_unfinished_name(name, text);
	unlinkat(dir, text, 0);
}

int spool_directory_list(int dir, struct why *why, char ***ret_names, size_t *ret_n)
{
	AUTO_CLOSE int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	size_t n = 0, size = 0;
	char **names = NULL;
	struct dirent *e;

	if (!d)
		return why_fail(why, errno, "spool.directory: cannot list the directory: %s",
				strerror(errno));
	fd = -1; /* owned by the DIR now */
	while ((e = readdir(d))) {
		struct spool_name name;
		char **grown = names;

		if (take_suffix(e->d_name, ".tmp")) { /* unfinished file of a killed run */
			if (spool_name_parse(e->d_name, &name))
				remove_unfinished(dir, e->d_name);
			continue;
		}
		if (!spool_name_parse(e->d_name, &name))
			continue;
		if (n == size) {
			size = size ? size * 2 : 256;
			grown = realloc(names, size * sizeof(*names));
		}
		if (grown)
			names = grown;
		if (!grown || !(names[n] = strdup(e->d_name)))
			break;
		n++;
	}
	closedir(d);
	if (n)
		qsort(names, n, sizeof(*names), compare_names);
	*ret_names = names;
	*ret_n = n;
	return e ? why_fail(why, ENOMEM, "out of memory") : 0;
}
