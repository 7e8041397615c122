// SPDX-License-Identifier: Apache-2.0
/* The spool's directory. See spool.h; the file format is in spool_file.c. */
#include "pipeline/spool/spool.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>

#include "base/log.h"
#include "pipeline/spool/spool_clock.h"
#include "pipeline/spool/spool_directory.h"
#include "base/clock.h"

enum { BLOCK = 4096, MAX_FILE_BYTES = 512 << 20, MAX_CORRUPT = 16, MAX_PARKED_BYTES = 1 << 20 };

/* A file not fsync'ed so far. */
struct unsynced {
	uint64_t written_ns;
	char name[SPOOL_NAME_MAX];
};

struct spool {
	struct spool_options options;
	_Atomic int dir; /* < 0: not created so far */
	_Atomic bool moved;
	struct spool_clock clock;
	/* writer thread only; a ring would save only a few kilobytes of copies per second */
	struct unsynced *unsynced;
	size_t n_unsynced, unsynced_size;
};

/* Errors that may pass: until then rows stay in memory. */
static bool may_pass(int err)
{
	return err == -EROFS || err == -ENOSPC || err == -EDQUOT || err == -EIO;
}

int spool_open(const struct spool_options *options, struct spool **ret_spool, struct why *why)
{
	struct spool *s = calloc(1, sizeof(*s));
	int err, dir = -1;

	if (!s)
		return why_fail(why, ENOMEM, "out of memory");
	s->options = *options;
	err = spool_directory_open(options->directory, &dir, why);
	if (err && !may_pass(err)) {
		free(s);
		return err;
	}
	if (err)
		log_warn("%s; rows are kept in memory until the spool is writable", why->text);
	s->dir = dir;
	spool_clock_open(&s->clock, dir);
	*ret_spool = s;
	return 0;
}

/*
 * A removed directory accepts no new files: create it again under the same path. The fd keeps its
 * number, which other threads use.
 */
static int reopen_lost(struct spool *s, struct why *why)
{
	struct stat st;
	int dir, err;

	if (s->dir >= 0 && (fstat(s->dir, &st) || st.st_nlink))
		return 0;
	err = spool_directory_open(s->options.directory, &dir, why);
	if (err)
		return err;
	log_warn("spool.directory: %s %s made", s->options.directory,
		 s->dir < 0 ? "could be" : "had been removed and is");
	if (s->dir < 0) {
		s->dir = dir;
		return 0;
	}
	err = dup3(dir, s->dir, O_CLOEXEC) < 0 ? errno : 0;
	close(dir);
	return err ? why_fail(why, err, "spool.directory: %s", strerror(err)) : 0;
}

/* Another directory, or none, is at the path: moved, replaced, or mounted over. */
static bool is_moved(const struct spool *s)
{
	struct stat mine, there;

	if (s->dir < 0 || fstat(s->dir, &mine) || !mine.st_nlink)
		return false;
	if (stat(s->options.directory, &there))
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
	return mine.st_dev != there.st_dev || mine.st_ino != there.st_ino;
}

void spool_where(const struct spool *s, char *path, size_t size)
{
	char link[40];
	ssize_t n = -1;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", s->dir);
	if (is_moved(s))
		n = readlink(link, path, size - 1);
	if (n < 0)
		snprintf(path, size, "%s", s->options.directory);
	else
		path[n] = '\0';
}

/* The open directory remains the spool: its batches are in use. */
static void check_moved(struct spool *s)
{
	bool moved = is_moved(s);
	char path[600];

	if (moved && !s->moved) {
		spool_where(s, path, sizeof(path));
		log_warn("spool.directory: %s is no longer the directory that was opened: it was "
			 "moved or replaced, or a mount hides it; rows go on to the opened one, "
			 "now %s, where the next start does not look: put it back before",
			 s->options.directory, path);
	}
	s->moved = moved;
}

void spool_close(struct spool *s)
{
	if (!s)
		return;
	if (s->dir >= 0)
		close(s->dir);
	free(s->unsynced);
	free(s);
}

int spool_directory(const struct spool *s)
{
	return s->dir;
}

/* ---- scan ---- */

static int found_file(struct spool *s, const char *text, const struct spool_name *name,
		      spool_on_file on_file, void *context)
{
	struct stat st;
	uint64_t age;

	if (fstatat(s->dir, text, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return 0;
	age = spool_clock_age(&s->clock, &st.st_mtim);
	if (s->clock.found != SPOOL_CLOCK_SAME_BOOT)
		spool_clock_stamp(&s->clock, s->dir, text, age);
	return on_file(name, ((uint64_t)st.st_size / BLOCK + 1) * BLOCK, age, context);
}

static bool is_whole_of(const char *text, const struct spool_name *half, bool *ret_same_order)
{
	struct spool_name name;

	*ret_same_order = spool_name_parse(text, &name) && name.order == half->order;
	return *ret_same_order && !strcmp(name.table, half->table) &&
	       strlen(name.part) < strlen(half->part) &&
	       !strncmp(name.part, half->part, strlen(name.part));
}

/*
 * Halves are sent only after the whole batch is removed. If the whole batch exists, its halves were
 * never sent and the split is repeated.
 */
static bool has_whole(const struct spool_name *half, char **names, size_t n, size_t i)
{
	bool same = *half->part;

	for (size_t j = i; same && j-- > 0;) {
		if (is_whole_of(names[j], half, &same))
			return true;
	}
	same = *half->part;
	for (size_t j = i + 1; same && j < n; j++) {
		if (is_whole_of(names[j], half, &same))
			return true;
	}
	return false;
}

int spool_scan(struct spool *s, spool_on_file on_file, void *context, struct why *why)
{
	char **names = NULL;
	size_t n = 0;
	int err = s->dir < 0 ? 0 : spool_directory_list(s->dir, why, &names, &n);

	for (size_t i = 0; i < n; i++) {
		struct spool_name name;

		if (err || !spool_name_parse(names[i], &name))
			continue;
		if (has_whole(&name, names, n, i))
			unlinkat(s->dir, names[i], 0);
		else
			err = found_file(s, names[i], &name, on_file, context);
	}
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
	if (!err && s->dir >= 0 && s->clock.found != SPOOL_CLOCK_SAME_BOOT)
		spool_clock_write(&s->clock, s->dir);
	return err;
}

/* ---- write and read ---- */

uint64_t spool_size_of(const struct batch *batch)
{
	/* header and strings take a few hundred bytes: never two more blocks */
	return (batch->body.len / BLOCK + 2) * BLOCK;
}

static int check_room(struct spool *s, uint64_t size, struct why *why)
{
	struct statvfs fs;

	if (fstatvfs(s->dir, &fs))
		return why_fail(why, errno, "spool.directory: %s", strerror(errno));
	if ((uint64_t)fs.f_bavail * fs.f_frsize >= s->options.min_free_bytes + size)
		return 0;
	return why_fail(why, ENOSPC, "spool.directory: %s: less than spool.min_free is left",
			s->options.directory);
}

static int write_all(int fd, const struct buffer *header, const struct buffer *body)
{
	const char *parts[2] = { header->data, body->data };
	const size_t lens[2] = { header->len, body->len };

	for (int i = 0; i < 2; i++) {
		for (size_t done = 0; done < lens[i];) {
			ssize_t n = write(fd, parts[i] + done, lens[i] - done);

			if (n < 0 && errno != EINTR)
				return -errno;
			done += n > 0 ? (size_t)n : 0;
		}
	}
	return 0;
}

static int remember_unsynced(struct spool *s, const char *name)
{
	if (s->n_unsynced == s->unsynced_size) {
		size_t size = s->unsynced_size ? s->unsynced_size * 2 : 16;
		struct unsynced *grown = realloc(s->unsynced, size * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		s->unsynced = grown;
		s->unsynced_size = size;
	}
	s->unsynced[s->n_unsynced].written_ns = clock_monotonic_ns();
	strcpy(s->unsynced[s->n_unsynced++].name, name);
	return 0;
}

/* Written under a temporary name, then renamed: a kill leaves a complete file or none. */
static int write_file(struct spool *s, const struct buffer *header, const struct buffer *body,
		      const char *name, bool sync, uint64_t *ret_size)
{
	char unfinished[SPOOL_NAME_MAX + 4];
	struct stat st = { 0 };
	int err, fd;

	spool_unfinished_name(name, unfinished);
	fd = openat(s->dir, unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return -errno;
	err = write_all(fd, header, body);
	if (!err)
		spool_clock_stamp(&s->clock, fd, NULL, 0);
	if (!err && (fstat(fd, &st) || (sync && fdatasync(fd))))
		err = -errno;
	if (close(fd) && !err)
		err = -errno;
	if (!err && renameat(s->dir, unfinished, s->dir, name))
		err = -errno;
	if (!err && sync && fsync(s->dir))
		err = -errno;
	if (err) {
		unlinkat(s->dir, unfinished, 0);
		unlinkat(s->dir, name, 0);
	}
	*ret_size = (uint64_t)st.st_size;
	return err;
}

int spool_put(struct spool *s, struct batch *batch, const char *table, bool sync, struct why *why)
{
	char name[SPOOL_NAME_MAX];
	struct buffer header;
	uint64_t size;
	int err = reopen_lost(s, why);

	if (!err)
		err = check_room(s, batch->body.len, why);
	if (err)
		return err;
	check_moved(s);
	if (spool_file_header(batch, table, &header))
		return why_fail(why, ENOMEM, "out of memory");
	spool_name_print(batch, table, name);
	sync |= !s->options.sync_after_ns || (!sync && remember_unsynced(s, name));
	err = write_file(s, &header, &batch->body, name, sync, &size);
	buffer_free(&header);
	if (err)
		return why_fail(why, -err, "spool.directory: cannot write to %s: %s",
				s->options.directory, strerror(-err));
	batch->disk_bytes = (size / BLOCK + 1) * BLOCK;
	return 0;
}

static int read_all(int fd, struct buffer *ret_file)
{
	struct buffer file = { 0 };
	struct stat st;
	ssize_t n = -1;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES)
		return -EBADMSG;
	if (buffer_reserve(&file, (size_t)st.st_size + 1))
		return -ENOMEM;
	while (file.len < file.capacity &&
	       ((n = read(fd, file.data + file.len, file.capacity - file.len)) > 0 ||
		(n < 0 && errno == EINTR)))
		file.len += n > 0 ? (size_t)n : 0;
	if (n < 0) {
		int err = -errno;

		buffer_free(&file);
		return err;
	}
	*ret_file = file;
	return 0;
}

int spool_load(struct spool *s, struct batch *batch, const char *table, struct why *why)
{
	struct spool_name name = { .order = batch->order, .rows = batch->rows };
	char text[SPOOL_NAME_MAX];
	struct buffer file = { 0 };
	AUTO_CLOSE int fd = -1;
	int err;

	snprintf(name.table, sizeof(name.table), "%s", table);
	spool_name_print(batch, table, text);
	/* non-blocking: the name may be a FIFO without a writer */
	fd = openat(s->dir, text, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		err = errno == ENOENT || errno == ELOOP ? -EBADMSG : -errno;
	else
		err = read_all(fd, &file);
	if (err)
		return why_fail(why, -err, "spool: cannot read %s: %s", text,
				strerror(fd < 0 ? errno : -err));
	err = spool_file_decode(&file, &name, batch, why);
	buffer_free(&file);
	return err;
}

void spool_remove(struct spool *s, const struct batch *batch, const char *table)
{
	char name[SPOOL_NAME_MAX];

	spool_name_print(batch, table, name);
	if (unlinkat(s->dir, name, 0) && errno != ENOENT)
		log_warn("spool: cannot remove %s, so the batch may be sent again after a "
			 "restart (ClickHouse deduplicates): %s",
			 name, strerror(errno));
}

int spool_replace(struct spool *s, const struct batch *whole, const char *table, struct why *why)
{
	char name[SPOOL_NAME_MAX];

	spool_name_print(whole, table, name);
	/* must never reappear after its halves were sent */
	if (!unlinkat(s->dir, name, 0) || errno == ENOENT) {
		fsync(s->dir);
		return 0;
	}
	return why_fail(why, errno, "spool: cannot replace %s by two halves: %s", name,
			strerror(errno));
}

/* ---- quarantine and dead letters ---- */

/* Keeps the newest files, for inspection. */
static void bound_corrupt(int dir)
{
	char **names = NULL;
	size_t n = 0;

	spool_directory_list(dir, NULL, &names, &n);
	for (size_t i = 0; i < n; i++) {
		if (i + MAX_CORRUPT < n)
			unlinkat(dir, names[i], 0);
		free(names[i]);
	}
	free(names);
}

void spool_quarantine(struct spool *s, const struct batch *batch, const char *table)
{
	char name[SPOOL_NAME_MAX];
	AUTO_CLOSE int dir = -1;

	spool_name_print(batch, table, name);
	mkdirat(s->dir, "corrupt", 0700);
	dir = openat(s->dir, "corrupt", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || renameat(s->dir, name, dir, name))
		unlinkat(s->dir, name, 0);
	if (dir >= 0)
		bound_corrupt(dir);
}

void spool_dead_letter(struct spool *s, const char *table, const char *reason,
		       const struct buffer *rows)
{
	AUTO_CLOSE int fd = openat(
		s->dir, "refused.ndjson",
		O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
	AUTO_FREE char *head = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    asprintf(&head, "# %s: %.300s\n", table, reason) < 0)
		return;
	for (char *p = head; p[1]; p++) /* a reason is a single line */
		*p = (unsigned char)*p < ' ' ? ' ' : *p;
	if ((uint64_t)st.st_size + strlen(head) + rows->len > MAX_PARKED_BYTES)
		return;
	n = writev(fd, (struct iovec[]){ { head, strlen(head) }, { rows->data, rows->len } }, 2);
	(void)n; /* already counted and logged; the file is for inspection */
}

/* ---- fsync ---- */

void spool_sync(struct spool *s, bool all)
{
	uint64_t now = clock_monotonic_ns();
	size_t n = 0;
	bool any = false;

	spool_clock_touch(&s->clock, s->dir);
	while (n < s->n_unsynced &&
	       (all || now - s->unsynced[n].written_ns >= s->options.sync_after_ns)) {
		int fd = openat(s->dir, s->unsynced[n++].name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			continue; /* delivered: nothing to fsync */
		fdatasync(fd);
		close(fd);
		any = true;
	}
	if (!n)
		return;
	s->n_unsynced -= n;
	memmove(s->unsynced, s->unsynced + n, s->n_unsynced * sizeof(*s->unsynced));
	if (any)
		fsync(s->dir);
}
