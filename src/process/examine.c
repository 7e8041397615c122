// SPDX-License-Identifier: Apache-2.0
/* Examines an unknown file. See examine.h. */
#include "process/examine.h"

#include <string.h>

#include "base/log.h"
#include "elf/elf_file.h"
#include "host/proc.h"
#include "cpython/remote.h"
#include "workers/reader_process.h"
#include "cpython/image_read.h"
#include "cpython/offsets.h"

/* Passed to a reader process and back: request and result. */
struct file_reading {
	uint32_t host_pid;
	bool library, unsure, of_process;
	struct file_identity identity;
	struct examine_candidate candidates[MAX_CANDIDATES];
	size_t n_candidates;

	enum binary_kind kind;
	int same; /* index of the matching candidate; -1: none */
	struct python_image image;
	struct python_offsets offsets;
	struct why why;
	char path[4096];
};

/* ---- a file in several overlays ---- */

/* Whether the process's memory has a breakpoint at the probe site: differs from the file. */
static bool has_probe(const struct file_reading *f, int fd, const struct examine_candidate *c)
{
	struct remote r = remote_of(f->host_pid, NULL, 1);
	uint32_t in_file, in_memory;
	uint64_t base;

	return c->has_site &&
	       pread(fd, &in_file, sizeof(in_file), (off_t)c->site.file_offset) ==
		       sizeof(in_file) &&
	       !proc_file_base(f->host_pid, f->identity.dev, f->identity.ino, &base) &&
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

static int find_same(const struct file_reading *f, int fd)
{
	for (size_t i = 0; i < f->n_candidates; i++) {
		const struct examine_candidate *c = &f->candidates[i];

		if (has_build_id(fd, c) && (!c->is_probed || has_probe(f, fd, c)))
			return (int)i;
	}
	return -1;
}

/* ---- a new file ---- */

/* 0, or errors of python_image_read_of(): not a Python, or not traceable. */
static int read_python(struct file_reading *f, int fd)
{
	int err = python_image_read_of(f->host_pid, fd, f->path, &f->image, &f->why);

	if (!err)
		err = python_offsets_for(&f->image, fd, &f->offsets, &f->why);
	return err;
}

static enum binary_kind kind_of_no_python(int err, int fd)
{
	if (err != -ENOENT)
		return BINARY_REFUSED;
	return python_image_needs_libpython(fd) ? BINARY_LINKS_LIBPYTHON : BINARY_OTHER;
}

static enum binary_kind read_open_file(struct file_reading *f, int fd)
{
	int err;

	f->same = find_same(f, fd);
	if (f->same >= 0)
		return BINARY_PYTHON;
	err = read_python(f, fd);
	if (err)
		return kind_of_no_python(err, fd);
	/*
	 * Last, but before any probe: a read that hangs is abandoned with its process
	 * (reader_process.h), a probe is not. Only a Python is worth a refusal.
	 */
	f->of_process = file_check_below(fd, f->host_pid, &f->unsure) != 0;
	if (!f->of_process)
		return BINARY_PYTHON;
	why_fail(&f->why, 0, "%.300s: " FILE_MAY_BE_SERVED, f->path);
	return BINARY_REFUSED;
}

/* Returns the file's descriptor (O_PATH), used to set probes. */
static void read_in_process(void *argument, struct read_extra *extra)
{
	struct file_reading *f = argument;
	struct file_identity found;
	AUTO_CLOSE int fd = -1;

	extra->fd = f->library ? proc_find_libpython(f->host_pid, f->path, sizeof(f->path))
			       : proc_find_exe(f->host_pid, f->path, sizeof(f->path));
	if (extra->fd < 0 || file_identify(extra->fd, f->host_pid, &found) ||
	    memcmp(&found, &f->identity, sizeof(found)) != 0)
		return;
	f->kind = BINARY_REFUSED;
	if (file_check_served(extra->fd, f->host_pid)) {
		if (proc_names_python(f->path))
			why_fail(&f->why, 0, "%.300s: " FILE_IS_SERVED, f->path);
		return;
	}
	fd = proc_open_found(extra->fd);
	if (fd >= 0) /* otherwise not permitted */
		f->kind = read_open_file(f, fd);
}

/* ---- reader thread ---- */

/* An O_PATH descriptor can be closed without blocking on a FUSE server. */
static struct python_binary *new_binary(struct examine_job *e, const struct file_reading *f, int fd)
{
	struct python_binary *binary = calloc(1, sizeof(*binary));

	if (!binary)
		return NULL;
	binary->id = (uint32_t)e->id;
	binary->identity = e->identity;
	binary->image = f->image;
	binary->offsets = f->offsets;
	binary->unsure = f->unsure;
	binary->attach_fd = fd;
	snprintf(binary->path, sizeof(binary->path), "%s", f->path);
	snprintf(binary->attach_path, sizeof(binary->attach_path), "/proc/self/fd/%d", fd);
	e->hooks->attach(binary, e->hooks->context);
	binary->attach_fd = 0;
	return binary;
}

static void take_reading(struct examine_job *e, const struct file_reading *f, int fd)
{
	e->kind = f->kind;
	e->why = f->why;
	e->of_process = f->of_process;
	if (f->kind == BINARY_PYTHON && f->same >= 0) {
		e->same = e->candidates[f->same].binary;
	} else if (f->kind == BINARY_PYTHON && e->id < 0) {
		e->no_room = true;
		e->kind = BINARY_REFUSED;
		why_fail(&e->why, ENOSPC, "more than %d Python binaries in use at once",
			 MAX_BINARIES);
	} else if (f->kind == BINARY_PYTHON) {
		e->binary = new_binary(e, f, fd);
		if (!e->binary)
			e->kind = BINARY_UNKNOWN;
	}
	if (e->kind == BINARY_REFUSED && e->why.text[0])
		log_warn("%s: not traced: %s", f->path, e->why.text);
}

void examine(struct job *job)
{
	struct examine_job *e = (struct examine_job *)job;
	AUTO_FREE struct file_reading *f = calloc(1, sizeof(*f));
	struct read_extra extra = { .fd = -1 };
	int err = -ENOMEM;

	if (f) {
		f->host_pid = job->host_pid;
		f->library = e->library;
		f->identity = e->identity;
		f->n_candidates = e->n_candidates;
		memcpy(f->candidates, e->candidates, sizeof(f->candidates));
		f->kind = BINARY_UNKNOWN;
		f->same = -1;
		err = reader_process_run(read_in_process, f, sizeof(*f), &extra);
	}
	if (!err)
		take_reading(e, f, extra.fd);
	e->given_up = err == -ECANCELED;
	if (err == -EIO) { /* permanent error */
		e->kind = BINARY_REFUSED;
		why_fail(&e->why, EIO,
			 "searching the file took more than %d s of CPU time or exceeded the "
			 "memory limit, or the file was truncated during the search",
			 READER_CPU_SECONDS);
	}
	if (extra.fd >= 0)
		close(extra.fd);
}
