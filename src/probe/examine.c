// SPDX-License-Identifier: Apache-2.0
/* Reading a file that nobody knows yet. See examine.h. */
#include "probe/examine.h"

#include <string.h>

#include "log.h"
#include "probe/elf_file.h"
#include "probe/proc.h"
#include "python/remote.h"

/* ---- one file in many overlays ---- */

/* Does the code in the process's memory differ from that in the file, where a probe should be? */
static bool has_probe(const struct examination *e, int fd, const struct examine_candidate *c)
{
	struct remote r = remote_of(e->job.host_pid, NULL, 1);
	uint32_t in_file, in_memory;
	uint64_t base;

	return c->has_site &&
	       pread(fd, &in_file, sizeof(in_file), (off_t)c->site.file_offset) ==
		       sizeof(in_file) &&
	       !proc_file_base(e->job.host_pid, e->identity.dev, e->identity.ino, &base) &&
	       !remote_read(&r, base - c->load_va + c->site.va, &in_memory, sizeof(in_memory)) &&
	       in_file != in_memory;
}

static bool has_build_id(int fd, const struct examine_candidate *c)
{
	uint8_t id[PYTHON_BUILD_ID_MAX];
	struct elf_file elf;
	size_t n;

	if (elf_file_open(fd, &elf, NULL))
		return false;
	n = elf_build_id(&elf, id, sizeof(id));
	elf_file_close(&elf);
	return n && n == c->build_id_len && !memcmp(id, c->build_id, n);
}

static struct python_binary *find_same(const struct examination *e, int fd)
{
	for (size_t i = 0; i < e->n_candidates; i++) {
		const struct examine_candidate *c = &e->candidates[i];

		if (has_build_id(fd, c) && (!c->is_probed || has_probe(e, fd, c)))
			return c->binary;
	}
	return NULL;
}

/* ---- a file of its own ---- */

/* 0, or as python_image_read_of(): then it is no Python, or none that can be traced. */
static int read_python(struct examination *e, int fd, const char *path,
		       struct python_binary *binary)
{
	int err = python_image_read_of(e->job.host_pid, fd, path, &binary->image, &e->why);

	if (!err)
		err = python_offsets_for(&binary->image, fd, &binary->offsets, &e->why);
	if (!err && e->id < 0) {
		e->no_room = true;
		err = why_fail(&e->why, ENOSPC, "more than %d Python binaries in use at once",
			       MAX_BINARIES);
	}
	return err;
}

static enum binary_kind kind_of_no_python(int err, int fd)
{
	if (err != -ENOENT)
		return BINARY_REFUSED;
	return python_image_needs_libpython(fd) ? BINARY_LINKS_LIBPYTHON : BINARY_OTHER;
}

static enum binary_kind read_file(struct examination *e, int fd, const char *path)
{
	struct python_binary *binary = calloc(1, sizeof(*binary));
	int err = binary ? read_python(e, fd, path, binary)
			 : why_fail(&e->why, ENOMEM, "out of memory");

	if (err) {
		free(binary);
		return kind_of_no_python(err, fd);
	}
	binary->id = (uint32_t)e->id;
	binary->identity = e->identity;
	snprintf(binary->path, sizeof(binary->path), "%s", path);
	snprintf(binary->attach_path, sizeof(binary->attach_path), "/proc/self/fd/%d", fd);
	e->hooks->attach(binary, e->hooks->context);
	e->binary = binary;
	return BINARY_PYTHON;
}

void examine(struct job *job)
{
	struct examination *e = (struct examination *)job;
	AUTO_CLOSE int path_fd = -1, fd = -1;
	struct file_identity found;
	char path[4096];

	path_fd = e->library ? proc_find_libpython(job->host_pid, path, sizeof(path))
			     : proc_find_exe(job->host_pid, path, sizeof(path));
	if (path_fd < 0 || file_identify(path_fd, job->host_pid, &found) ||
	    memcmp(&found, &e->identity, sizeof(found)) != 0)
		return;
	e->kind = BINARY_REFUSED;
	fd = proc_open_found(path_fd);
	if (fd < 0) /* not ours to read */
		return;
	e->same = find_same(e, fd);
	e->kind = e->same ? BINARY_PYTHON : read_file(e, fd, path);
	if (e->kind == BINARY_REFUSED)
		log_warn("%s: not traced: %s", path, e->why.text);
}
