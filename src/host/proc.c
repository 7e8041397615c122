// SPDX-License-Identifier: Apache-2.0
/* Readers of /proc/PID. See proc.h. */
#include "host/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "host/cgroup.h"
#include "host/file_identity.h"
#include "base/util.h"

/* Limits: a hostile process can have 65,530 mappings; a Python has a few hundred. */
enum { MAX_LINES = 20000, LINE_MAX_BYTES = 4096 + 128 };
/* A path longer than PATH_MAX: only its last component is known. */
#define CUT_FOLDER "/<cut>"

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

static bool cut_deleted(char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), cut = sizeof(deleted) - 1;

	if (len <= cut || strcmp(path + len - cut, deleted))
		return false;
	path[len - cut] = 0;
	return true;
}

bool proc_names_python(const char *path)
{
	const char *base = strrchr(path, '/');

	return strstr(base ? base + 1 : path, "python") != NULL;
}

/* "libpython3.11.so.1.0", "libpython3.13t.so"; not "libpython_helper.so". */
static bool is_libpython_name(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, "libpython3.", 11) && strstr(base, ".so");
}

/* "python3", "python3.11", "python3.13t": a program that the dynamic loader may have been told to
 * run. */
static bool is_python_name(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, "python3", 7) && !base[7 + strspn(base + 7, ".0123456789td")];
}

/*
 * Opens the file of `path_fd` (O_PATH) for reading, if regular and not served by a program. Opening
 * a device may have side effects; a FIFO blocks.
 */
static int open_regular(int path_fd, uint32_t pid)
{
	int err = file_identify(path_fd, pid, NULL);

	if (!err)
		err = file_check_served(path_fd, pid);
	return err ? err : proc_open_found(path_fd);
}

int proc_open_found(int path_fd)
{
	char link[64];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

static int find_in_root(uint32_t pid, const char *path)
{
	/* another mount may be a file system served by a program */
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | (pid ? RESOLVE_NO_XDEV : 0),
	};
	AUTO_CLOSE int root = -1;
	char root_path[64] = "/";
	int err, fd;

	if (pid)
		snprintf(root_path, sizeof(root_path), "/proc/%u/root", pid);
	root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	err = file_check_served(root, pid);
	if (err)
		return err;
	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

int proc_open_in_root(uint32_t pid, const char *path)
{
	AUTO_CLOSE int path_fd = find_in_root(pid, path);

	return path_fd < 0 ? path_fd : open_regular(path_fd, pid);
}

static int find_mapping_file(uint32_t pid, uint64_t low, uint64_t high, const char *path)
{
	char link[96];
	int fd;

	/* no leading zeros, unlike lines of maps */
	snprintf(link, sizeof(link), "/proc/%u/map_files/%llx-%llx", pid, (unsigned long long)low,
		 (unsigned long long)high);
	fd = open(link, O_PATH | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	/* without permission for map_files: use the path */
	return (errno == EPERM || errno == EACCES) && path ? find_in_root(pid, path) : -errno;
}

int proc_open_mapping(uint32_t pid, uint64_t low, uint64_t high, const char *path)
{
	AUTO_CLOSE int path_fd = find_mapping_file(pid, low, high, path);

	return path_fd < 0 ? path_fd : open_regular(path_fd, pid);
}

/* The kernel does not show the target of a link that is longer than PATH_MAX. */
static int read_path(const char *link, char *ret_path, size_t path_size)
{
	ssize_t n = readlink(link, ret_path, path_size - 1);
	int err = n < 0 ? -errno : 0;

	ret_path[n < 0 ? 0 : n] = 0;
	if (err == -ENAMETOOLONG)
		snprintf(ret_path, path_size, CUT_FOLDER);
	cut_deleted(ret_path);
	return err == -ENAMETOOLONG ? 0 : err;
}

int proc_find_exe(uint32_t pid, char *ret_path, size_t path_size)
{
	char link[64];
	int fd;

	snprintf(link, sizeof(link), "/proc/%u/exe", pid);
	fd = open(link, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	read_path(link, ret_path, path_size);
	return fd;
}

/* Skips `n` words and their spaces. */
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
	char permissions[5], *name;
	uint32_t major, minor;
	bool deleted;

	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &low, &high, permissions, &offset, &major,
		   &minor, &ino) != 7 ||
	    low >= high)
		return false;
	name = skip_words(line, 5);
	name[strcspn(name, "\n")] = 0;
	deleted = cut_deleted(name);
	*ret = (struct proc_mapping){
		.low = low,
		.high = high,
		.offset = offset,
		.ino = ino,
		.major = major,
		.minor = minor,
		.executable = strlen(permissions) > 2 && permissions[2] == 'x',
		.deleted = deleted,
		.name = name,
		.path = *name == '/' ? name : NULL, /* names without '/': [heap], [anon:...] */
	};
	return true;
}

/* Appends, and keeps the last `max` bytes. */
static void append_last(char *end, size_t max, const char *text)
{
	size_t n = strlen(text), have = strlen(end);
	size_t drop = have + n > max ? have + n - max : 0;

	if (drop > have) {
		text += drop - have;
		drop = have;
	}
	memmove(end, end + drop, have - drop);
	strcpy(end + have - drop, text);
}

/*
 * A line of maps. The kernel also shows paths longer than PATH_MAX: their last component, below
 * CUT_FOLDER. Returns the number of reads; 0: end.
 */
static size_t read_line(FILE *maps, char line[LINE_MAX_BYTES], size_t max_reads)
{
	enum { COMPONENT_MAX = 4 * 255 + 32 }; /* a newline is \012; " (deleted)" */
	char more[LINE_MAX_BYTES], end[COMPONENT_MAX + 1] = "", *name;
	size_t reads = 1;

	if (!fgets(line, LINE_MAX_BYTES, maps))
		return 0;
	if (strchr(line, '\n'))
		return 1;
	append_last(end, COMPONENT_MAX, line);
	for (; !strchr(end, '\n') && reads < max_reads && fgets(more, sizeof(more), maps); reads++)
		append_last(end, COMPONENT_MAX, more);
	name = strrchr(end, '/');
	line[LINE_MAX_BYTES / 2] = 0; /* the rest has room */
	snprintf(skip_words(line, 5), LINE_MAX_BYTES / 2, CUT_FOLDER "%s", name ? name : "/");
	return reads;
}

int proc_walk_mappings(uint32_t pid, size_t max_lines, proc_each_mapping each, void *context)
{
	char line[LINE_MAX_BYTES], name[64];
	AUTO_FCLOSE FILE *maps = NULL;
	struct proc_mapping m;
	size_t left = max_lines, reads;
	int found = 0;

	snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	maps = fopen(name, "re");
	if (!maps)
		return -errno;
	while (!found && left && (reads = read_line(maps, line, left))) {
		left -= reads;
		if (proc_parse_mapping(line, &m))
			found = each(&m, context);
	}
	return found;
}

/* ---- search in the mappings ---- */

/* No file has this path. */
static bool is_cut(const char *path)
{
	return !strncmp(path, CUT_FOLDER "/", sizeof(CUT_FOLDER));
}

struct wanted_address {
	uint64_t address;
	struct proc_mapping *ret;
	char *path; /* of `size` */
	size_t size;
};

static int is_at_address(const struct proc_mapping *m, void *context)
{
	const struct wanted_address *wanted = context;

	if (wanted->address < m->low || wanted->address >= m->high)
		return 0;
	snprintf(wanted->path, wanted->size, "%s", m->name);
	*wanted->ret = *m;
	wanted->ret->name = wanted->path;
	wanted->ret->path = m->path ? wanted->path : NULL;
	return 1;
}

int proc_find_mapping(uint32_t pid, uint64_t address, struct proc_mapping *ret, char *path,
		      size_t size)
{
	struct wanted_address wanted = { address, ret, path, size };
	int found = proc_walk_mappings(pid, MAX_LINES, is_at_address, &wanted);

	return found > 0 ? 0 : found < 0 ? found : -EFAULT;
}

struct wanted_library {
	uint32_t pid;
	int fd;	      /* or -errno */
	bool program; /* of a python program, as there is no libpython */
	char *ret_path;
	size_t path_size;
};

static int is_libpython(const struct proc_mapping *m, void *context)
{
	struct wanted_library *wanted = context;
	bool library = m->path && is_libpython_name(m->path);

	if (!library && (wanted->fd >= 0 || !m->path || !m->executable || !is_python_name(m->path)))
		return 0;
	wanted->program = !library;
	if (wanted->fd >= 0)
		close(wanted->fd);
	wanted->fd = find_mapping_file(wanted->pid, m->low, m->high, m->path);
	if (wanted->fd == -ENOENT && is_cut(m->path))
		wanted->fd = -ENAMETOOLONG;
	if (wanted->fd >= 0)
		snprintf(wanted->ret_path, wanted->path_size, "%s", m->path);
	return library;
}

int proc_find_libpython(uint32_t pid, char *ret_path, size_t path_size)
{
	struct wanted_library wanted = {
		.pid = pid, .fd = -ENOENT, .ret_path = ret_path, .path_size = path_size
	};
	int found = proc_walk_mappings(pid, MAX_LINES, is_libpython, &wanted);
	char link[64], exe[PATH_MAX] = "";

	/* A process that has begun such a program itself meanwhile is looked at anew, by that file:
	 * a mapping of a file in an overlay leads to the file below. */
	snprintf(link, sizeof(link), "/proc/%u/exe", pid);
	if (wanted.program && (read_path(link, exe, sizeof(exe)) || is_python_name(exe))) {
		if (wanted.fd >= 0)
			close(wanted.fd);
		wanted.fd = -ENOENT;
	}
	return found < 0 ? found : wanted.fd;
}

struct wanted_file {
	uint32_t pid;
	const char *exe;
	uint64_t dev, ino, base;
};

/* Device numbers of /proc/PID/maps may differ from stat(): uses stat() of the file. */
static bool mapping_is(const struct proc_mapping *m, const struct wanted_file *wanted)
{
	AUTO_CLOSE int fd = find_mapping_file(wanted->pid, m->low, m->high, m->path);
	struct file_identity found;

	return fd >= 0 && !file_identify(fd, wanted->pid, &found) && found.dev == wanted->dev &&
	       found.ino == wanted->ino;
}

static int is_file_base(const struct proc_mapping *m, void *context)
{
	struct wanted_file *wanted = context;

	if (!m->path || m->offset)
		return 0;
	if ((strcmp(m->path, wanted->exe) && !is_cut(m->path) && !is_libpython_name(m->path) &&
	     !is_python_name(m->path)) ||
	    !mapping_is(m, wanted))
		return 0;
	wanted->base = m->low;
	return 1;
}

int proc_file_base(uint32_t pid, uint64_t dev, uint64_t ino, uint64_t *ret_address)
{
	char name[64], exe[4096];
	struct wanted_file wanted = { .pid = pid, .exe = exe, .dev = dev, .ino = ino };
	int found;

	snprintf(name, sizeof(name), "/proc/%u/exe", pid);
	found = read_path(name, exe, sizeof(exe));
	if (found)
		return found;
	found = proc_walk_mappings(pid, MAX_LINES, is_file_base, &wanted);
	if (found <= 0)
		return found < 0 ? found : -ENOENT;
	*ret_address = wanted.base;
	return 0;
}

uint64_t proc_parse_start_time(const char *stat)
{
	unsigned long long start;
	const char *p;

	/* field 2, the name, may contain any characters: search from the end */
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

int proc_say_missing(uint32_t pid, struct why *why)
{
	/* a signal's rights do not depend on the mount of /proc */
	if (pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM) &&
	    !proc_start_time(pid))
		return why_fail(why, ESRCH,
				"process %u is there, but /proc does not show it to this user "
				"(hidepid): run as root (sudo)",
				pid);
	return why_fail(why, ESRCH, "there is no process %u on this host", pid);
}

uint64_t proc_owner(uint32_t pid)
{
	char text[4096];
	const char *line;
	unsigned int uid;

	/* the real user: unlike the owner of /proc files, a program cannot change it */
	if (proc_read(pid, "status", text, sizeof(text)) <= 0)
		return UINT64_MAX;
	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u", &uid) != 1)
		return UINT64_MAX;
	if (proc_read(pid, "cgroup", text, sizeof(text)) < 0)
		text[0] = '\0';
	return (uint64_t)cgroup_tenant(text) << 32 | uid;
}

uint32_t proc_parent(uint32_t pid)
{
	char stat[1024], *p;
	unsigned int parent;

	if (proc_read(pid, "stat", stat, sizeof(stat)) <= 0)
		return 0;
	p = strrchr(stat, ')'); /* the name before may contain any characters */
	return p && sscanf(p, ") %*c %u", &parent) == 1 ? parent : 0;
}

bool proc_descends_from(uint32_t pid, uint32_t ancestor)
{
	enum { MAX_GENERATIONS = 100 }; /* parents may change while they are asked for */

	for (size_t i = 0; pid && pid != ancestor && i < MAX_GENERATIONS; i++)
		pid = proc_parent(pid);
	return pid == ancestor;
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
