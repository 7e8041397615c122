// SPDX-License-Identifier: Apache-2.0
/*
 * python_image_read() with real Python binaries: with symbols, stripped, with static probes, and
 * with damaged copies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "elf/eh_frame.h"
#include "elf/function_body.h"
#include "cpython/image_read.h"
#include "cpython/gc.h"
#include "pythons.h"

static struct pythons pythons;

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	return fd;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Reads the image with a single GC method; false: method not available. */
static bool read_by(const char *path, unsigned int way, struct python_image *ret)
{
	AUTO_CLOSE int fd = open_file(path);
	struct elf_file elf;
	struct why why = {};

	if (python_image_read(fd, path, ret, &why))
		fail_msg("%s", why.text);
	assert_int_equal(elf_file_open(fd, &elf, &why), 0);
	python_gc_find(&elf, way, ret);
	elf_file_close(&elf);
	return ret->gc_method != GC_METHOD_NONE;
}

static bool is_interpreter(const char *path, struct python_image *ret)
{
	AUTO_CLOSE int fd = open_file(path);

	return python_image_read(fd, path, ret, NULL) == 0;
}

static void test_debian_python(void **state)
{
	AUTO_CLOSE int fd = open_file(DEBIAN_PYTHON);
	struct python_image image;
	struct why why = {};

	(void)state;
	assert_int_equal(python_image_read(fd, DEBIAN_PYTHON, &image, &why), 0);
	assert_int_equal(image.major, 3);
	assert_int_equal(image.minor, 11);
	assert_int_equal(image.build_id_len, 20);
	assert_false(image.free_threaded);
	assert_int_not_equal(image.runtime_file_offset, 0);
	assert_int_equal(image.gc_method, GC_METHOD_USDT);
	assert_int_equal(image.n_gc_entry, 1);
	assert_int_equal(image.n_gc_exit, 1);
	/* not PIE: addresses and file offsets differ; USDT probes need the semaphore */
	assert_true(image.gc_entry[0].file_offset < image.gc_entry[0].va);
	assert_int_not_equal(image.gc_entry[0].ref_ctr_offset, 0);
	assert_int_not_equal(image.gc_exit[0].arg.place, ARG_NONE);
	assert_false(python_image_needs_libpython(fd));
}

/* Directories of pyenv are named by the full version. */
static void test_versions(void **state)
{
	(void)state;
	for (size_t i = 0; i < pythons.n; i++) {
		AUTO_CLOSE int fd = open_file(pythons.path[i]);
		unsigned int minor, micro;
		struct python_image image;
		struct why why = {};
		const char *at;
		int err;

		at = strstr(pythons.path[i], "/versions/3.");
		if (!at || sscanf(at, "/versions/3.%u.%u", &minor, &micro) != 2)
			continue;
		/* a path without version: the file must contain the version */
		err = python_image_read(fd, "/proc/self/exe", &image, &why);
		if (python_image_needs_libpython(fd) || minor < 7) {
			assert_int_equal(err, -ENOENT);
		} else if (minor < 8) {
			assert_int_equal(err, -ENOTSUP);
			assert_non_null(strstr(why.text, "3.7 is not supported"));
		} else {
			assert_int_equal(err, 0);
			assert_int_equal(image.minor, minor);
			assert_int_equal(image.micro, micro);
		}
	}
}

static void assert_same_sites(const struct probe_site *a, uint32_t n_a, const struct probe_site *b,
			      uint32_t n_b)
{
	assert_int_equal(n_a, n_b);
	for (uint32_t i = 0; i < n_a; i++) {
		bool found = false;

		for (uint32_t k = 0; k < n_b; k++)
			found |= a[i].va == b[k].va && a[i].file_offset == b[k].file_offset;
		assert_true(found);
	}
}

/* The scan agrees with the symbols, in the file and in a stripped copy. */
static void test_scan_equals_symbols(void **state)
{
	char dir[] = "/tmp/underspan-test-XXXXXX", copy[64], command[PATH_MAX + 128];
	size_t compared = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(copy, sizeof(copy), "%s/stripped", dir);
	for (size_t i = 0; i < pythons.n; i++) {
		struct python_image symbol, scan, stripped;

		if (!is_interpreter(pythons.path[i], &symbol) ||
		    !read_by(pythons.path[i], GC_TRY_SYMBOL, &symbol))
			continue;
		assert_true(read_by(pythons.path[i], GC_TRY_SCAN, &scan));
		assert_same_sites(symbol.gc_entry, symbol.n_gc_entry, scan.gc_entry,
				  scan.n_gc_entry);
		assert_same_sites(symbol.gc_exit, symbol.n_gc_exit, scan.gc_exit, scan.n_gc_exit);

		snprintf(command, sizeof(command), "strip --strip-all -o %s '%s'", copy,
			 pythons.path[i]);
		assert_int_equal(system(command), 0);
		assert_false(read_by(copy, GC_TRY_SYMBOL, &stripped));
		assert_true(read_by(copy, GC_TRY_ALL, &stripped));
		assert_int_equal(stripped.gc_method, GC_METHOD_SCAN);
		assert_same_sites(symbol.gc_entry, symbol.n_gc_entry, stripped.gc_entry,
				  stripped.n_gc_entry);
		assert_same_sites(symbol.gc_exit, symbol.n_gc_exit, stripped.gc_exit,
				  stripped.n_gc_exit);
		assert_int_equal(stripped.minor, symbol.minor);
		assert_int_equal(stripped.micro, symbol.micro);
		unlink(copy);
		compared++;
	}
	rmdir(dir);
	print_message("    compared %zu binaries with symbols and without\n", compared);
}

/* The static probes are in the function found by the scan, in its moved part. */
static void test_scan_finds_the_probed_function(void **state)
{
	AUTO_CLOSE int fd = open_file(DEBIAN_PYTHON);
	struct python_image usdt, scan;
	struct functions functions;
	const struct function *f;
	struct function_body body;
	struct elf_file elf;
	struct why why = {};

	(void)state;
	assert_true(read_by(DEBIAN_PYTHON, GC_TRY_USDT, &usdt));
	assert_true(read_by(DEBIAN_PYTHON, GC_TRY_SCAN, &scan));
	assert_int_equal(scan.n_gc_entry, 1);

	assert_int_equal(elf_file_open(fd, &elf, &why), 0);
	assert_int_equal(elf_load_readonly(&elf, &why), 0);
	assert_int_equal(functions_from_unwind_table(&elf, &functions, &why), 0);
	f = functions_find(&functions, scan.gc_entry[0].va);
	assert_non_null(f);
	assert_int_equal(f->start, scan.gc_entry[0].va);
	assert_int_equal(function_body_read(&elf, &functions, f, &body, &why), 0);
	for (uint32_t i = 0; i < usdt.n_gc_entry; i++)
		assert_true(function_body_contains(&body, usdt.gc_entry[i].va));
	for (uint32_t i = 0; i < usdt.n_gc_exit; i++)
		assert_true(function_body_contains(&body, usdt.gc_exit[i].va));
	for (uint32_t i = 0; i < scan.n_gc_exit; i++)
		assert_true(function_body_contains(&body, scan.gc_exit[i].va));
	function_body_free(&body);
	functions_free(&functions);
	elf_file_close(&elf);
}

static void test_scan_is_quick(void **state)
{
	double worst = 0;

	(void)state;
	for (size_t i = 0; i < pythons.n; i++) {
		struct python_image image;
		double start;

		if (!is_interpreter(pythons.path[i], &image))
			continue;
		start = now_ms();
		assert_true(read_by(pythons.path[i], GC_TRY_SCAN, &image));
		if (now_ms() - start > worst)
			worst = now_ms() - start;
	}
	print_message("    slowest scan: %.1f ms\n", worst);
}

static void test_no_python(void **state)
{
	static const char *const paths[] = { "/bin/sh", "/usr/bin/env" };
	struct python_image image;
	struct why why = {};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		AUTO_CLOSE int fd = open_file(paths[i]);

		assert_int_equal(python_image_read(fd, paths[i], &image, &why), -ENOENT);
		assert_string_equal(why.text, "");
		assert_false(python_image_needs_libpython(fd));
	}
}

static void assert_refused(int fd, int err)
{
	struct python_image image;
	struct why why = {};

	assert_int_equal(python_image_read(fd, "name", &image, &why), err);
	assert_int_not_equal(why.text[0], '\0');
	assert_false(python_image_needs_libpython(fd));
}

static void test_no_elf(void **state)
{
	char fifo[] = "/tmp/underspan-test-XXXXXX";
	int fd;

	(void)state;
	fd = open_file("/dev/null");
	assert_refused(fd, -EINVAL);
	close(fd);
	fd = open_file("/etc/passwd");
	assert_refused(fd, -EINVAL);
	close(fd);
	fd = memfd_create("empty", MFD_CLOEXEC);
	assert_refused(fd, -EINVAL);
	close(fd);
	assert_refused(-1, -EBADF);

	/* a read would block forever without a writer */
	assert_non_null(mkdtemp(fifo));
	assert_int_equal(rmdir(fifo), 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	fd = open(fifo, O_RDWR | O_CLOEXEC);
	assert_refused(fd, -EINVAL);
	close(fd);
	unlink(fifo);
}

/* ---- damaged files ---- */

/* A copy of Debian's python in memory, to damage and repair. */
struct victim {
	int fd;
	uint8_t *bytes;
	size_t size;
	struct elf_file elf; /* of the undamaged file */
};

static void victim_open(struct victim *v)
{
	AUTO_CLOSE int fd = open_file(DEBIAN_PYTHON);
	struct why why = {};
	struct stat st;

	fstat(fd, &st);
	v->size = (size_t)st.st_size;
	v->bytes = malloc(v->size);
	assert_non_null(v->bytes);
	assert_int_equal(pread(fd, v->bytes, v->size, 0), v->size);
	v->fd = memfd_create("victim", MFD_CLOEXEC);
	assert_int_equal(pwrite(v->fd, v->bytes, v->size, 0), v->size);
	assert_int_equal(elf_file_open(v->fd, &v->elf, &why), 0);
}

static void victim_close(struct victim *v)
{
	elf_file_close(&v->elf);
	close(v->fd);
	free(v->bytes);
}

/* A fixed sequence: failures are reproducible. */
static uint64_t random_next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return *seed >> 33;
}

/* Puts a few random or extreme bytes into [from, from + size), calls, and repairs. */
static void damage(struct victim *v, size_t from, size_t size, int rounds, void (*use)(int fd))
{
	static const uint8_t extremes[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	uint64_t seed = from;

	for (int round = 0; round < rounds; round++) {
		size_t at[4];

		for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
			uint64_t r = random_next(&seed);
			uint8_t byte = r & 1 ? (uint8_t)(r >> 8) : extremes[(r >> 1) % 5];

			at[i] = from + random_next(&seed) % size;
			assert_int_equal(pwrite(v->fd, &byte, 1, (off_t)at[i]), 1);
		}
		use(v->fd);
		for (size_t i = 0; i < ARRAY_SIZE(at); i++)
			assert_int_equal(pwrite(v->fd, v->bytes + at[i], 1, (off_t)at[i]), 1);
	}
}

static void use_all(int fd)
{
	struct python_image image;

	python_image_read(fd, "python3.11", &image, NULL);
	python_image_needs_libpython(fd);
}

static void use_way(int fd, unsigned int way)
{
	struct python_image image = { .major = 3, .minor = 11 };
	struct elf_file elf;

	if (elf_file_open(fd, &elf, NULL))
		return;
	python_gc_find(&elf, way, &image);
	elf_file_close(&elf);
}

static void use_usdt(int fd)
{
	use_way(fd, GC_TRY_USDT);
}

static void use_scan(int fd)
{
	use_way(fd, GC_TRY_SCAN);
}

static void use_unwind_table(int fd)
{
	struct functions functions = {};
	struct elf_file elf;

	if (elf_file_open(fd, &elf, NULL))
		return;
	if (elf_load_readonly(&elf, NULL) == 0)
		eh_frame_functions(&elf, &functions, NULL);
	functions_free(&functions);
	elf_file_close(&elf);
}

static void test_damaged(void **state)
{
	const Elf64_Shdr *notes, *hdr, *frame, *dynsym;
	struct victim v;
	Elf64_Ehdr eh;

	(void)state;
	victim_open(&v);
	memcpy(&eh, v.bytes, sizeof(eh));
	notes = elf_section(&v.elf, ".note.stapsdt");
	hdr = elf_section(&v.elf, ".eh_frame_hdr");
	frame = elf_section(&v.elf, ".eh_frame");
	dynsym = elf_section(&v.elf, ".dynsym");
	assert_true(notes && hdr && frame && dynsym);

	damage(&v, 0, sizeof(eh), 1000, use_all);
	damage(&v, eh.e_phoff, eh.e_phnum * sizeof(Elf64_Phdr), 1000, use_all);
	damage(&v, eh.e_shoff, eh.e_shnum * sizeof(Elf64_Shdr), 1000, use_all);
	damage(&v, dynsym->sh_offset, dynsym->sh_size, 200, use_all);
	damage(&v, notes->sh_offset, notes->sh_size, 2000, use_usdt);
	damage(&v, hdr->sh_offset, 64, 200, use_unwind_table);
	damage(&v, frame->sh_offset, 4096, 100, use_unwind_table);
	damage(&v, eh.e_phoff, eh.e_phnum * sizeof(Elf64_Phdr), 100, use_scan);
	damage(&v, frame->sh_offset, frame->sh_size, 20, use_scan);
	victim_close(&v);
}

/* All pointers of the unwind table point to an entry whose instructions fill the segment. */
static void test_costly_unwind_table(void **state)
{
	const Elf64_Shdr *hdr;
	struct victim v;
	double start;

	(void)state;
	victim_open(&v);
	hdr = elf_section(&v.elf, ".eh_frame_hdr");
	assert_non_null(hdr);
	for (size_t i = 12; i + 8 <= hdr->sh_size; i += 8)
		memcpy(v.bytes + hdr->sh_offset + i + 4, v.bytes + hdr->sh_offset + 16, 4);
	memset(v.bytes + hdr->sh_offset + hdr->sh_size + 64, 0x80, 1 << 20);
	assert_int_equal(pwrite(v.fd, v.bytes, v.size, 0), v.size);
	start = now_ms();
	use_unwind_table(v.fd);
	assert_true(now_ms() - start < 5000); /* quadratic time would be hours */
	victim_close(&v);
}

static void test_truncated(void **state)
{
	struct victim v;

	(void)state;
	victim_open(&v);
	for (size_t size = v.size & ~4095UL; size; size -= 4096) {
		assert_int_equal(ftruncate(v.fd, (off_t)size), 0);
		use_all(v.fd);
	}
	victim_close(&v);
}

/* Sparse and huge sizes in headers must not be allocated. */
static void test_oversized(void **state)
{
	struct python_image image;
	struct why why = {};
	struct victim v;
	Elf64_Ehdr eh;
	Elf64_Phdr ph;
	off_t at;

	(void)state;
	victim_open(&v);
	memcpy(&eh, v.bytes, sizeof(eh));
	assert_int_equal(ftruncate(v.fd, 1LL << 36), 0);
	for (int i = 0; i < eh.e_phnum; i++) {
		at = (off_t)(eh.e_phoff + (size_t)i * sizeof(ph));
		memcpy(&ph, v.bytes + at, sizeof(ph));
		if (ph.p_type == PT_LOAD && (ph.p_flags & PF_X))
			break;
	}
	ph.p_filesz = ph.p_memsz = 1ULL << 35;
	assert_int_equal(pwrite(v.fd, &ph, sizeof(ph), at), sizeof(ph));
	assert_int_equal(python_image_read(v.fd, "python3.11", &image, &why), 0);
	use_scan(v.fd);

	struct elf_file elf;
	assert_int_equal(elf_file_open(v.fd, &elf, &why), 0);
	python_gc_find(&elf, GC_TRY_SCAN, &image);
	assert_int_equal(image.gc_method, GC_METHOD_NONE);
	assert_non_null(strstr(image.gc_why.text, "MiB"));
	elf_file_close(&elf);
	victim_close(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_debian_python),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_scan_equals_symbols),
		cmocka_unit_test(test_scan_finds_the_probed_function),
		cmocka_unit_test(test_scan_is_quick),
		cmocka_unit_test(test_no_python),
		cmocka_unit_test(test_no_elf),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_costly_unwind_table),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_oversized),
	};

	pythons_find(&pythons);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
