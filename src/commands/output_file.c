// SPDX-License-Identifier: Apache-2.0
/* The file of -o. See output_file.h. */
#include "commands/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* errno's reason, with the fix where the directory is missing. */
static int refuse(const char *path, struct why *why)
{
	int err = errno;
	const char *slash = strrchr(path, '/');
	int len = slash > path ? (int)(slash - path) : 0;
	char directory[PATH_MAX];

	snprintf(directory, sizeof(directory), "%.*s", len, path);
	if (err == ENOENT && len && len < PATH_MAX && access(directory, F_OK))
		return why_fail(why, err,
				"%s: cannot be written: there is no directory %s: make it first, "
				"mkdir -p %s",
				path, directory, directory);
	return why_fail(why, err, "%s: cannot be written: %s%s", path, strerror(err),
			err == EACCES || err == EROFS ? ": name a file in a directory of yours"
						      : "");
}

bool output_is_device(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int output_file_open(struct output_file *file, const char *path, struct why *why)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	*file = (struct output_file){ path, fd, fd >= 0 };
	if (fd < 0 && errno == EEXIST)
		file->fd = open(path, O_WRONLY | O_CLOEXEC);
	if (file->fd < 0)
		return refuse(path, why);
	return 0;
}

FILE *output_file_begin(struct output_file *file, int *ret_err, struct why *why)
{
	FILE *out = NULL;
	struct stat st;

	*ret_err = 0;
	if (fstat(file->fd, &st) == 0 && S_ISREG(st.st_mode) && ftruncate(file->fd, 0))
		*ret_err = why_fail(why, errno, "%s: cannot be written: %s", file->path,
				    strerror(errno));
	else if (!(out = fdopen(file->fd, "w")))
		*ret_err = why_fail(why, errno, "%s: %s", file->path, strerror(errno));
	return out;
}

void output_file_drop(const struct output_file *file)
{
	if (file->made)
		unlink(file->path);
}
