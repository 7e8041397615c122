// SPDX-License-Identifier: Apache-2.0
/* The Python binaries in use, each read and probed once. See binaries.h. */
#include "probe/binaries.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "log.h"
#include "probe/clock.h"
#include "probe/elf_file.h"
#include "probe/proc.h"
#include "python/remote.h"

/* Long enough that a restarting service finds its probes still in place. */
static const uint64_t UNUSED_BINARY_KEEP_NS = 30 * NSEC_PER_SEC;

/* What was said of a file, so that each exec costs a look-up and not a look into the file. */
struct verdict {
	struct file_identity identity;
	enum binary_kind kind;
	struct python_binary *binary; /* BINARY_PYTHON: known by the file's identity elsewhere */
	bool no_room;
	struct why why;
	UT_hash_handle hh;
};
enum { MAX_VERDICTS = 4096 };

static struct python_binary *binaries;
static struct verdict *verdicts;
static bool id_used[MAX_BINARIES];
static struct binaries_hooks hooks;
static struct python_binary *leaving; /* let go, but not all of their links are closed */

void file_identity_of(int fd, const struct stat *st, struct file_identity *ret)
{
	struct statfs fs;

	/* hashed as bytes: no hole may hold garbage */
	memset(ret, 0, sizeof(*ret));
	ret->dev = st->st_dev;
	ret->ino = st->st_ino;
	ret->size = (uint64_t)st->st_size;
	ret->mtime_ns = (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st->st_mtim.tv_nsec;
	if (fstatfs(fd, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC)
		ret->overlay_ctime_ns = (uint64_t)st->st_ctim.tv_sec * NSEC_PER_SEC +
					(uint64_t)st->st_ctim.tv_nsec;
}

void binaries_init(const struct binaries_hooks *with)
{
	hooks = *with;
}

static void forget_verdict(struct verdict *v)
{
	HASH_DEL(verdicts, v);
	free(v);
}

/* `of`: only those on the files of this binary. */
static void forget_verdicts(const struct python_binary *of)
{
	struct verdict *v, *next;

	HASH_ITER(hh, verdicts, v, next)
	{
		if (!of || v->binary == of)
			forget_verdict(v);
	}
}

static void remember_verdict(const struct file_identity *identity, enum binary_kind kind,
			     const struct binary_file *file, const struct why *why)
{
	struct verdict *v;

	if (HASH_COUNT(verdicts) >= MAX_VERDICTS)
		forget_verdicts(NULL);
	v = calloc(1, sizeof(*v));
	if (!v)
		return; /* it will be looked at again */
	v->identity = *identity;
	v->kind = kind;
	v->binary = file->binary;
	v->no_room = file->no_room;
	v->why = *why;
	HASH_ADD(hh, verdicts, identity, sizeof(v->identity), v);
}

/* ---- one file in many overlays ---- */

static size_t n_links(const struct python_binary *binary)
{
	size_t n = 0;

	for (size_t i = 0; i < MAX_TRACKERS; i++)
		n += binary->links[i].n;
	return n;
}

/* Does the code in the process's memory differ from that in the file, where a probe should be? */
static bool has_probe(int fd, uint32_t host_pid, const struct binary_file *file,
		      const struct python_binary *binary)
{
	const struct probe_site *site = &binary->image.gc_exit[0];
	struct remote r = remote_of(host_pid, &binary->offsets, 1);
	uint32_t in_file, in_memory;
	uint64_t base;

	return binary->image.n_gc_exit &&
	       pread(fd, &in_file, sizeof(in_file), (off_t)site->file_offset) == sizeof(in_file) &&
	       !proc_file_base(host_pid, file->dev, file->ino, &base) &&
	       !remote_read(&r, base - binary->image.load_va + site->va, &in_memory,
			    sizeof(in_memory)) &&
	       in_file != in_memory;
}

static bool has_build_id(int fd, const struct python_image *image)
{
	uint8_t id[PYTHON_BUILD_ID_MAX];
	struct elf_file elf;
	size_t n;

	if (elf_file_open(fd, &elf, NULL))
		return false;
	n = elf_build_id(&elf, id, sizeof(id));
	elf_file_close(&elf);
	return n && n == image->build_id_len && !memcmp(id, image->build_id, n);
}

/*
 * Containers of one image run one file, each through an overlay of its own, which gives it another
 * device. Probes are in the file below; the kernel does not say which that is, but it shows the
 * probes of a binary that is known already in the memory of the process. To probe that file again
 * would make each probe of it dearer, for all.
 */
static struct python_binary *find_below(int fd, uint32_t host_pid,
					const struct file_identity *identity,
					const struct binary_file *file)
{
	struct file_identity same = *identity;
	struct python_binary *b, *next;

	if (!identity->overlay_ctime_ns)
		return NULL;
	HASH_ITER(hh, binaries, b, next)
	{
		same.dev = b->identity.dev;
		if (!memcmp(&same, &b->identity, sizeof(same)) && has_build_id(fd, &b->image) &&
		    (!n_links(b) || has_probe(fd, host_pid, file, b)))
			return b;
	}
	return NULL;
}

/* ---- binaries ---- */

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
	forget_verdicts(binary);
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

/* What is kept only for the case that it comes back. */
static void let_unused_go(void)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	{
		if (!b->users)
			binary_let_go(b);
	}
}

bool binaries_have_room(void)
{
	for (int i = 0; i < MAX_BINARIES; i++) {
		if (!id_used[i])
			return true;
	}
	let_unused_go();
	return false;
}

/* Reads the file as a Python. BINARY_PYTHON: ret->binary is new, in the table, and probed. */
static enum binary_kind examine(int fd, const char *path, uint32_t host_pid,
				const struct file_identity *identity, struct binary_file *ret,
				struct why *why)
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
		ret->no_room = true;
		why_fail(why, ENOSPC, "more than %d Python binaries in use at once", MAX_BINARIES);
		return BINARY_REFUSED;
	}
	binary->id = (uint32_t)id;
	binary->identity = *identity;
	snprintf(binary->path, sizeof(binary->path), "%s", path);
	snprintf(binary->attach_path, sizeof(binary->attach_path), "/proc/self/fd/%d", fd);
	HASH_ADD(hh, binaries, identity, sizeof(binary->identity), binary);
	hooks.attach(binary, hooks.context);
	ret->binary = binary;
	return BINARY_PYTHON;
}

static enum binary_kind recall(const struct verdict *v, struct binary_file *ret, struct why *why)
{
	ret->binary = v->binary;
	ret->no_room = v->no_room;
	*why = v->why;
	return v->kind;
}

enum binary_kind binaries_identify(int fd, const char *path, uint32_t host_pid,
				   struct binary_file *ret, struct why *why)
{
	struct file_identity identity;
	struct why reason = { { 0 } };
	enum binary_kind kind;
	struct verdict *v;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return BINARY_OTHER;
	file_identity_of(fd, &st, &identity);
	*ret = (struct binary_file){ .dev = identity.dev, .ino = identity.ino };
	HASH_FIND(hh, binaries, &identity, sizeof(identity), ret->binary);
	if (ret->binary)
		return BINARY_PYTHON;
	HASH_FIND(hh, verdicts, &identity, sizeof(identity), v);
	if (v && v->no_room && binaries_have_room()) {
		forget_verdict(v);
		v = NULL;
	}
	if (v)
		return recall(v, ret, why);
	ret->binary = find_below(fd, host_pid, &identity, ret);
	if (ret->binary) {
		remember_verdict(&identity, BINARY_PYTHON, ret, &reason);
		return BINARY_PYTHON;
	}
	kind = examine(fd, path, host_pid, &identity, ret, &reason);
	if (kind == BINARY_PYTHON)
		return kind;
	if (kind == BINARY_REFUSED)
		log_warn("%s: not traced: %s", path, reason.text);
	remember_verdict(&identity, kind, ret, &reason);
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

void binaries_leave_all(void)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	binary_let_go(b);
}

void binaries_done(void)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	binaries_leave_all();
	for (forget_detached(); leaving; forget_detached())
		nanosleep(&pause, NULL);
	forget_verdicts(NULL);
}
