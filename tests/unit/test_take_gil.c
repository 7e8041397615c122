// SPDX-License-Identifier: Apache-2.0
/*
 * take_gil() of real Pythons: the caller of pthread_cond_timedwait() is the function named
 * take_gil, at the same addresses in stripped copies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "elf/call_sites.h"
#include "elf/elf_file.h"
#include "cpython/image_read.h"
#include "cpython/gil.h"
#include "cpython/take_gil.h"
#include "pythons.h"

static struct pythons pythons;

static bool is_interpreter(const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct python_image image;

	return fd >= 0 && python_image_read(fd, path, &image, NULL) == 0 && image.minor >= 8;
}

static void find(const char *path, struct take_gil_bounds *bounds, struct take_gil_waits *waits)
{
	const struct readable_file file = { .path = path, .fd = -1 };
	struct why why = {};

	if (take_gil_find_bounds(&file, bounds, &why) || take_gil_find_waits(&file, waits, &why))
		fail_msg("%s: %s", path, why.text);
}

static int by_value(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static void assert_equal_sets(uint64_t *a, size_t n_a, uint64_t *b, size_t n_b)
{
	assert_int_equal(n_a, n_b);
	qsort(a, n_a, sizeof(*a), by_value);
	qsort(b, n_b, sizeof(*b), by_value);
	assert_memory_equal(a, b, n_a * sizeof(*a));
}

static void test_stripped_is_the_same(void **state)
{
	char copy[] = "/tmp/test_take_gil.XXXXXX";
	int fd = mkstemp(copy);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	for (size_t i = 0; i < pythons.n; i++) {
		struct take_gil_bounds bounds, stripped_bounds;
		struct take_gil_waits waits, stripped_waits;
		char command[2 * PATH_MAX];

		if (!is_interpreter(pythons.path[i]))
			continue;
		find(pythons.path[i], &bounds, &waits);
		snprintf(command, sizeof(command), "strip -o %s '%s'", copy, pythons.path[i]);
		assert_int_equal(system(command), 0);
		find(copy, &stripped_bounds, &stripped_waits);
		print_message("%s: %zu entries, %zu exits, %zu calls\n", pythons.path[i],
			      bounds.n_entry, bounds.n_exit, waits.n);
		assert_true(bounds.n_entry >= 1 && bounds.n_exit >= bounds.n_entry && waits.n >= 1);
		assert_equal_sets(bounds.entry, bounds.n_entry, stripped_bounds.entry,
				  stripped_bounds.n_entry);
		assert_equal_sets(bounds.exit, bounds.n_exit, stripped_bounds.exit,
				  stripped_bounds.n_exit);
		assert_equal_sets(waits.call, waits.n, stripped_waits.call, stripped_waits.n);
	}
	unlink(copy);
}

/* A copy of the interpreter with another C library name of the same length. */
static void copy_with_another_libc(const char *path, const char *copy)
{
	static const char libc[] = "libc.so.6", musl[] = "libc.musl";
	struct elf_file elf;
	const Elf64_Shdr *names;
	char command[2 * PATH_MAX];
	int fd;

	snprintf(command, sizeof(command), "cp '%s' %s", path, copy);
	assert_int_equal(system(command), 0);
	fd = open(copy, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(elf_file_open(fd, &elf, NULL), 0);
	names = elf_section(&elf, ".dynstr");
	assert_non_null(names);
	for (uint64_t i = 0; i + sizeof(libc) <= names->sh_size; i++) {
		char text[sizeof(libc)];

		assert_int_equal(elf_read(&elf, names->sh_offset + i, text, sizeof(text)), 0);
		if (!memcmp(text, libc, sizeof(libc)))
			assert_int_equal(
				pwrite(fd, musl, sizeof(musl), (off_t)(names->sh_offset + i)),
				sizeof(musl));
	}
	elf_file_close(&elf);
	close(fd);
}

static bool uses_glibc(const char *path)
{
	const struct readable_file file = { .path = path, .fd = -1 };
	const struct python_image image = {};
	struct why why = {};
	bool glibc;

	if (python_gil_check(&image, &file, &glibc, &why))
		fail_msg("%s: %s", path, why.text);
	return glibc;
}

static void test_other_libcs_are_told(void **state)
{
	char copy[] = "/tmp/test_take_gil.XXXXXX";
	int fd = mkstemp(copy);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	for (size_t i = 0; i < pythons.n; i++) {
		if (!is_interpreter(pythons.path[i]))
			continue;
		assert_true(uses_glibc(pythons.path[i]));
		copy_with_another_libc(pythons.path[i], copy);
		assert_false(uses_glibc(copy));
	}
	unlink(copy);
}

static void test_no_calls_are_refused(void **state)
{
	const struct readable_file file = { .path = "/bin/true", .fd = -1 };
	struct take_gil_bounds bounds;
	struct take_gil_waits waits;
	struct why why = {};

	(void)state;
	assert_int_equal(take_gil_find_waits(&file, &waits, &why), -ENOTSUP);
	assert_non_null(strstr(why.text, "pthread_cond_timedwait"));
	assert_int_equal(take_gil_find_bounds(&file, &bounds, &why), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stripped_is_the_same),
		cmocka_unit_test(test_other_libcs_are_told),
		cmocka_unit_test(test_no_calls_are_refused),
	};

	pythons_find(&pythons);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
