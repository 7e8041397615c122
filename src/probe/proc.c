// SPDX-License-Identifier: Apache-2.0
/* Readers of /proc/PID. See proc.h. */
#include "probe/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "util.h"

/* A hostile process can map a file 65,530 times; a Python has a few hundred lines. */
enum { MAPS_MAX_LINES = 20000, MAPS_LINE_MAX = 4096 + 128 };

ssize_t proc_read(uint32_t pid, const char *name, char *buf, size_t size)
{
	AUTO_CLOSE int fd = -1;
	size_t len = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (len < size - 1) {
		ssize_t n = read(fd, buf + len, size - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = 0;
	return (ssize_t)len;
}

static void cut_deleted(char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), cut = sizeof(deleted) - 1;

	if (len > cut && !strcmp(path + len - cut, deleted))
		path[len - cut] = 0;
}

int proc_open_exe(uint32_t pid, char *ret_path, size_t path_size)
{
	char link[64];
	ssize_t n;
	int fd;

	snprintf(link, sizeof(link), "/proc/%u/exe", pid);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	n = readlink(link, ret_path, path_size - 1);
	if (n < 0)
		n = 0;
	ret_path[n] = 0;
	cut_deleted(ret_path);
	return fd;
}

/* "libpython3.11.so.1.0", "libpython3.13t.so"; not "libpython_helper.so" of somebody else. */
static bool is_libpython_name(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, "libpython3.", 11) && strstr(base, ".so");
}

static int open_in_root(uint32_t pid, const char *path)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	AUTO_CLOSE int root = -1;
	char root_path[64];
	int fd;

	snprintf(root_path, sizeof(root_path), "/proc/%u/root", pid);
	root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

static int open_mapping(uint32_t pid, uint64_t low, uint64_t high, const char *path)
{
	char link[96];
	int fd;

	/* these names have no leading zeros, unlike the lines of maps */
	snprintf(link, sizeof(link), "/proc/%u/map_files/%llx-%llx", pid, (unsigned long long)low,
		 (unsigned long long)high);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0)
		return fd;
	return open_in_root(pid, path);
}

/* The first word after `n` words and the spaces between them. */
static char *skip_words(char *p, int n)
{
	while (n--) {
		p += strcspn(p, " ");
		p += strspn(p, " ");
	}
	return p;
}

bool proc_parse_mapping(char *line, struct proc_mapping *ret)
{
	unsigned long long low, high, offset, ino;
	char permissions[5], *path;

	if (sscanf(line, "%llx-%llx %4s %llx %*s %llu", &low, &high, permissions, &offset, &ino) !=
		    5 ||
	    low >= high)
		return false;
	path = skip_words(line, 5);
	path[strcspn(path, "\n")] = 0;
	cut_deleted(path);
	*ret = (struct proc_mapping){
		.low = low,
		.high = high,
		.offset = offset,
		.ino = ino,
		.executable = strlen(permissions) > 2 && permissions[2] == 'x',
		.path = *path == '/' ? path : NULL, /* others are no files: [heap], [anon:...] */
	};
	return true;
}

int proc_open_libpython(uint32_t pid, char *ret_path, size_t path_size)
{
	AUTO_FCLOSE FILE *maps = NULL;
	char line[MAPS_LINE_MAX], name[64];

	snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	maps = fopen(name, "re");
	if (!maps)
		return -errno;
	for (int i = 0; i < MAPS_MAX_LINES && fgets(line, sizeof(line), maps); i++) {
		struct proc_mapping m;
		int fd;

		if (!proc_parse_mapping(line, &m) || !m.path || !is_libpython_name(m.path))
			continue;
		fd = open_mapping(pid, m.low, m.high, m.path);
		if (fd >= 0)
			snprintf(ret_path, path_size, "%s", m.path);
		return fd;
	}
	return -ENOENT;
}

/* /proc/PID/maps may show other device numbers than stat(): the file itself is asked. */
static bool mapping_is(uint32_t pid, uint64_t low, uint64_t high, const char *path, uint64_t dev,
		       uint64_t ino)
{
	AUTO_CLOSE int fd = open_mapping(pid, low, high, path);
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && st.st_dev == dev && st.st_ino == ino;
}

int proc_file_base(uint32_t pid, uint64_t dev, uint64_t ino, uint64_t *ret_address)
{
	char line[MAPS_LINE_MAX], name[64], exe[4096];
	AUTO_FCLOSE FILE *maps = NULL;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%u/exe", pid);
	n = readlink(name, exe, sizeof(exe) - 1);
	if (n < 0)
		return -errno;
	exe[n] = 0;
	cut_deleted(exe);
	snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	maps = fopen(name, "re");
	if (!maps)
		return -errno;
	for (int i = 0; i < MAPS_MAX_LINES && fgets(line, sizeof(line), maps); i++) {
		struct proc_mapping m;

		if (!proc_parse_mapping(line, &m) || !m.path || m.offset)
			continue;
		if ((strcmp(m.path, exe) && !is_libpython_name(m.path)) ||
		    !mapping_is(pid, m.low, m.high, m.path, dev, ino))
			continue;
		*ret_address = m.low;
		return 0;
	}
	return -ENOENT;
}

uint64_t proc_parse_start_time(const char *stat)
{
	unsigned long long start;
	const char *p;

	/* the name, field 2, may hold anything, spaces and brackets too: count from its end */
	p = strrchr(stat, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, " %llu", &start) != 1)
		return 0;
	return start;
}

uint64_t proc_start_time(uint32_t pid)
{
	char stat[1024];

	return proc_read(pid, "stat", stat, sizeof(stat)) > 0 ? proc_parse_start_time(stat) : 0;
}

void proc_for_each(void (*each)(uint32_t pid, void *context), void *context)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (isdigit((unsigned char)entry->d_name[0]))
			each((uint32_t)strtoul(entry->d_name, NULL, 10), context);
	}
	closedir(dir);
}
