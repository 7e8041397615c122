// SPDX-License-Identifier: Apache-2.0
/* Addresses of GILs. See gil.h. */
#include "cpython/gil.h"

#include <fcntl.h>
#include <string.h>

#include "elf/elf_file.h"
#include "cpython/remote.h"
#include "python_gil.h"

enum { MAX_INTERPRETERS = 256 };

/* Address of the GIL struct as used by BPF: free-threaded builds have 8 bytes before it. */
static uint64_t normal(uint64_t gil, const struct python_offsets *offsets)
{
	return gil + offsets->gil_cond - PYTHON_GIL_COND;
}

static bool contains(const uint64_t *gils, size_t n, uint64_t gil)
{
	for (size_t i = 0; i < n; i++) {
		if (gils[i] == gil)
			return true;
	}
	return false;
}

size_t python_gil_find(uint32_t host_pid, uint64_t runtime, const struct python_offsets *offsets,
		       uint64_t *ret_gils, size_t max)
{
	struct remote r = remote_of(host_pid, offsets, 1 + 2 * MAX_INTERPRETERS);
	uint64_t interp, gil;
	size_t n = 0;

	if (offsets->gil_kind == PYTHON_GIL_IN_RUNTIME) {
		ret_gils[0] = normal(runtime + offsets->gil, offsets);
		return 1;
	}
	if (remote_u64(&r, runtime + offsets->runtime_interpreters_head, &interp))
		return 0;
	while (interp && n < max) {
		if (remote_u64(&r, interp + offsets->gil, &gil))
			break;
		gil = gil ? normal(gil, offsets) : 0;
		if (gil && !contains(ret_gils, n, gil))
			ret_gils[n++] = gil;
		if (remote_u64(&r, interp + offsets->interp_next, &interp))
			break;
	}
	return n;
}

static int open_elf(const char *path, int *ret_fd, struct elf_file *ret, struct why *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return why_fail(why, errno, "cannot open the file: %s", strerror(errno));
	err = elf_file_open(fd, ret, why);
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

/* Linked to glibc or, in a static program, with glibc's name among the constants. */
static bool uses_glibc(struct elf_file *elf)
{
	static const char name[] = "GNU C Library";

	if (elf_needs(elf, "libc."))
		return elf_needs(elf, "libc.so.6");
	if (elf_load_readonly(elf, NULL))
		return false;
	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];

		if (s->data && memmem(s->data, s->file_size, name, sizeof(name) - 1))
			return true;
	}
	return false;
}

static int check_in_place(const char *path, bool *ret_glibc, struct why *why)
{
	AUTO_CLOSE int fd = -1;
	struct elf_file elf;
	int err = open_elf(path, &fd, &elf, why);

	if (err)
		return err;
	if (elf.n_loads)
		*ret_glibc = uses_glibc(&elf);
	else
		err = why_fail(why, EINVAL, "the file has nothing to load");
	elf_file_close(&elf);
	return err;
}

struct gil_check {
	struct reading reading;
	bool glibc;
};

static void check_in_process(void *argument, struct read_extra *extra)
{
	struct gil_check *check = argument;
	struct reading *r = &check->reading;

	reading_begin(r, extra);
	r->err = check_in_place(r->path, &check->glibc, &r->why);
}

int python_gil_check(const struct python_image *image, const struct readable_file *file,
		     bool *ret_glibc, struct why *why)
{
	AUTO_FREE struct gil_check *check = calloc(1, sizeof(*check));
	int err;

	if (image->free_threaded)
		return why_fail(why, ENOTSUP, "a free-threaded build: there is no GIL to wait for");
	if (!check)
		return why_fail(why, ENOMEM, "out of memory");
	err = file_read(file, check_in_process, &check->reading, sizeof(*check), why);
	*ret_glibc = check->glibc;
	return err;
}
