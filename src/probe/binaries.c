// SPDX-License-Identifier: Apache-2.0
/* The Python binaries in use, each read and probed once. See binaries.h. */
#include "probe/binaries.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "log.h"
#include "probe/clock.h"

/* Long enough that a restarting service finds its probes still in place. */
static const uint64_t UNUSED_BINARY_KEEP_NS = 30 * NSEC_PER_SEC;

/* What was said of a file, so that each exec costs a look-up and not a look into the file. */
struct verdict {
	struct file_identity identity;
	enum binary_kind kind;
	struct why why;
	UT_hash_handle hh;
};
enum { MAX_VERDICTS = 4096 };

static struct python_binary *binaries;
static struct verdict *verdicts;
static bool id_used[MAX_BINARIES];
static struct binaries_hooks hooks;
static struct python_binary *leaving; /* let go, but not all of their links are closed */

void file_identity_of(const struct stat *st, struct file_identity *ret)
{
	/* hashed as bytes: no hole may hold garbage */
	memset(ret, 0, sizeof(*ret));
	ret->dev = st->st_dev;
	ret->ino = st->st_ino;
	ret->size = (uint64_t)st->st_size;
	ret->mtime_ns = (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st->st_mtim.tv_nsec;
}

void binaries_init(const struct binaries_hooks *with)
{
	hooks = *with;
}

static void forget_verdicts(void)
{
	struct verdict *v, *next;

	HASH_ITER(hh, verdicts, v, next)
	{
		HASH_DEL(verdicts, v);
		free(v);
	}
}

static void remember_verdict(const struct file_identity *identity, enum binary_kind kind,
			     const struct why *why)
{
	struct verdict *v;

	if (HASH_COUNT(verdicts) >= MAX_VERDICTS)
		forget_verdicts();
	v = calloc(1, sizeof(*v));
	if (!v)
		return; /* it will be looked at again */
	v->identity = *identity;
	v->kind = kind;
	v->why = *why;
	HASH_ADD(hh, verdicts, identity, sizeof(v->identity), v);
}

static int take_id(void)
{
	for (int i = 0; i < MAX_BINARIES; i++) {
		if (!id_used[i]) {
			id_used[i] = true;
			return i;
		}
	}
	return -1;
}

/* Its number stays taken until none of its probes can fire any more. */
static void binary_let_go(struct python_binary *binary)
{
	HASH_DEL(binaries, binary);
	hooks.leave(binary, hooks.context);
	binary->next = leaving;
	leaving = binary;
	links_retire(binary->links, MAX_TRACKERS, &binary->detached);
}

static void forget_detached(void)
{
	for (struct python_binary **at = &leaving; *at;) {
		struct python_binary *binary = *at;

		if (!atomic_load(&binary->detached)) {
			at = &binary->next;
			continue;
		}
		*at = binary->next;
		id_used[binary->id] = false;
		free(binary);
	}
}

/* Reads the file as a Python. BINARY_PYTHON: *ret_binary is new, in the table, and probed. */
static enum binary_kind examine(int fd, const char *path, uint32_t host_pid,
				const struct file_identity *identity,
				struct python_binary **ret_binary, struct why *why)
{
	struct python_binary *binary;
	int err, id;

	binary = calloc(1, sizeof(*binary));
	if (!binary) {
		why_fail(why, ENOMEM, "out of memory");
		return BINARY_REFUSED;
	}
	err = python_image_read_of(host_pid, fd, path, &binary->image, why);
	if (!err)
		err = python_offsets_for(&binary->image, fd, &binary->offsets, why);
	if (err) {
		free(binary);
		if (err != -ENOENT)
			return BINARY_REFUSED;
		return python_image_needs_libpython(fd) ? BINARY_LINKS_LIBPYTHON : BINARY_OTHER;
	}
	id = take_id();
	if (id < 0) {
		free(binary);
		why_fail(why, ENOSPC, "more than %d Python binaries in use at once", MAX_BINARIES);
		return BINARY_REFUSED;
	}
	binary->id = (uint32_t)id;
	binary->identity = *identity;
	snprintf(binary->path, sizeof(binary->path), "%s", path);
	snprintf(binary->attach_path, sizeof(binary->attach_path), "/proc/self/fd/%d", fd);
	HASH_ADD(hh, binaries, identity, sizeof(binary->identity), binary);
	hooks.attach(binary, hooks.context);
	*ret_binary = binary;
	return BINARY_PYTHON;
}

enum binary_kind binaries_identify(int fd, const char *path, uint32_t host_pid,
				   struct python_binary **ret_binary, struct why *why)
{
	struct file_identity identity;
	struct why reason = { { 0 } };
	enum binary_kind kind;
	struct verdict *v;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return BINARY_OTHER;
	file_identity_of(&st, &identity);
	HASH_FIND(hh, binaries, &identity, sizeof(identity), *ret_binary);
	if (*ret_binary)
		return BINARY_PYTHON;
	HASH_FIND(hh, verdicts, &identity, sizeof(identity), v);
	if (v) {
		*why = v->why;
		return v->kind;
	}
	kind = examine(fd, path, host_pid, &identity, ret_binary, &reason);
	if (kind == BINARY_PYTHON)
		return kind;
	if (kind == BINARY_REFUSED)
		log_warn("%s: not traced: %s", path, reason.text);
	remember_verdict(&identity, kind, &reason);
	*why = reason;
	return kind;
}

void binary_hold(struct python_binary *binary)
{
	binary->users++;
}

void binary_release(struct python_binary *binary)
{
	if (--binary->users == 0)
		binary->unused_since_ns = clock_monotonic_ns();
}

void binaries_tick(uint64_t now_ns)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	{
		if (b->users || now_ns - b->unused_since_ns < UNUSED_BINARY_KEEP_NS)
			continue;
		log_info("%s: no process uses it any more, its probes are removed", b->path);
		binary_let_go(b);
	}
	forget_detached();
}

void binaries_done(void)
{
	struct python_binary *b, *next;
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	HASH_ITER(hh, binaries, b, next)
	binary_let_go(b);
	for (forget_detached(); leaving; forget_detached())
		nanosleep(&pause, NULL);
	forget_verdicts();
}
