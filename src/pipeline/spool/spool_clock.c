// SPDX-License-Identifier: Apache-2.0
/* Age of files on a host with an unreliable wall clock. See spool_clock.h. */
#include "pipeline/spool/spool_clock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"

static const char file_name[] = "clock";
static const uint64_t TOUCH_NS = 60 * NSEC_PER_SEC;
/* spool.max_age is at most a year: older times of files come from a wrong clock */
static const int64_t CREDIBLE_NS = 2 * 366 * 86400 * (int64_t)NSEC_PER_SEC;

static int64_t to_ns(const struct timespec *t)
{
	return (int64_t)t->tv_sec * (int64_t)NSEC_PER_SEC + t->tv_nsec;
}

static int64_t now_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return to_ns(&t);
}

static void read_boot_id(char ret[SPOOL_BOOT_ID_MAX])
{
	AUTO_FCLOSE FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	ret[0] = '\0';
	if (f && fgets(ret, SPOOL_BOOT_ID_MAX, f))
		ret[strcspn(ret, "\n")] = '\0';
}

/* "BOOT_ID BASE\n" */
static bool read_file(int dir, char boot_id[SPOOL_BOOT_ID_MAX], int64_t *ret_base,
		      int64_t *ret_last)
{
	AUTO_CLOSE int fd = openat(dir, file_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	char text[128];
	struct stat st;
	long long base;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return false;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	if (sscanf(text, "%39s %lld", boot_id, &base) != 2)
		return false;
	*ret_base = base;
	*ret_last = to_ns(&st.st_mtim);
	return true;
}

void spool_clock_open(struct spool_clock *c, int dir)
{
	char boot_id[SPOOL_BOOT_ID_MAX];
	int64_t base;

	*c = (struct spool_clock){ .base_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME) };
	read_boot_id(c->boot_id);
	if (dir < 0 || !read_file(dir, boot_id, &base, &c->last_ns))
		return;
	c->found = strcmp(boot_id, c->boot_id) != 0 ? SPOOL_CLOCK_OTHER_BOOT
						    : SPOOL_CLOCK_SAME_BOOT;
	if (c->found == SPOOL_CLOCK_SAME_BOOT)
		c->base_ns = base;
}

uint64_t spool_clock_age(const struct spool_clock *c, const struct timespec *mtime)
{
	int64_t up = now_ns(CLOCK_BOOTTIME), written = to_ns(mtime), age;

	switch (c->found) {
	case SPOOL_CLOCK_SAME_BOOT:
		age = c->base_ns + up - written;
		break;
	case SPOOL_CLOCK_OTHER_BOOT:
		age = (c->last_ns > written ? c->last_ns - written : 0) + up;
		break;
	default: /* files of an older version: only the wall clock is known */
		age = now_ns(CLOCK_REALTIME) - written;
	}
	return age > 0 && age < CREDIBLE_NS ? (uint64_t)age : 0;
}

void spool_clock_stamp(const struct spool_clock *c, int fd, const char *name, uint64_t age)
{
	int64_t at = c->base_ns + now_ns(CLOCK_BOOTTIME) - (int64_t)age;
	int64_t ns = at % (int64_t)NSEC_PER_SEC;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

	ns += ns < 0 ? (int64_t)NSEC_PER_SEC : 0;
	times[1].tv_sec = (time_t)((at - ns) / (int64_t)NSEC_PER_SEC);
	times[1].tv_nsec = (long)ns;
	if (name)
		utimensat(fd, name, times, AT_SYMLINK_NOFOLLOW);
	else
		futimens(fd, times);
}

void spool_clock_write(struct spool_clock *c, int dir)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "%s %lld\n", c->boot_id, (long long)c->base_ns);
	AUTO_CLOSE int fd = openat(
		dir, "clock.new",
		O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0)
		return; /* the disk refuses writes: ages follow the wall clock */
	if (write(fd, text, (size_t)n) != n) {
		unlinkat(dir, "clock.new", 0);
		return;
	}
	spool_clock_stamp(c, fd, NULL, 0);
	renameat(dir, "clock.new", dir, file_name);
}

void spool_clock_touch(struct spool_clock *c, int dir)
{
	uint64_t up = (uint64_t)now_ns(CLOCK_BOOTTIME);

	if (dir < 0 || up - c->touched_ns < TOUCH_NS)
		return;
	c->touched_ns = up;
	if (faccessat(dir, file_name, F_OK, AT_SYMLINK_NOFOLLOW))
		spool_clock_write(c, dir);
	else
		spool_clock_stamp(c, dir, file_name, 0);
}
