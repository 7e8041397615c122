// SPDX-License-Identifier: Apache-2.0
/*
 * ELF readers with Debian's arm64 interpreters (tests/e2e/roots.sh), static and shared, 3.11
 * to 3.15: the GC function is found by static probes and by content, with the same result, and the
 * offsets are known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>

#include "elf/elf_file.h"
#include "cpython/image_read.h"
#include "cpython/offsets.h"
#include "cpython/gc.h"
#include "python_offsets.h"
#include "pythons.h"

static struct pythons pythons;

static void read_file(const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct python_offsets offsets;
	struct python_image image;
	struct why why = {};
	struct elf_file elf;

	if (python_image_read(fd, path, &image, &why) ||
	    python_offsets_for(&image, fd, &offsets, &why))
		fail_msg("%s: %s", path, why.text);
	assert_int_equal(image.machine, EM_AARCH64);
	assert_int_equal(image.gc_method, GC_METHOD_USDT);
	assert_true(image.gc_entry[0].arg.place == ARG_MEMORY ||
		    image.gc_entry[0].arg.place == ARG_REGISTER);
	assert_int_equal(offsets.minor, image.minor);
	assert_true(offsets.interp_modules && offsets.tstate_native_thread_id && offsets.gc_stats);

	assert_int_equal(elf_file_open(fd, &elf, &why), 0);
	python_gc_find(&elf, 1u << GC_METHOD_SCAN, &image);
	elf_file_close(&elf);
	if (image.gc_method != GC_METHOD_SCAN)
		fail_msg("%s: %s", path, image.gc_why.text);
	assert_int_equal(image.n_gc_entry, 1);
	for (uint32_t i = 0; i < image.n_gc_exit; i++)
		assert_int_equal(image.gc_exit[i].file_offset % 4, 0);
}

static void test_files(void **state)
{
	(void)state;
	pythons_glob(&pythons, "build/cache/arm64-*/usr/bin/python3.[0-9][0-9]");
	pythons_glob(&pythons, "build/cache/arm64-*/usr/lib/*/libpython3.[0-9][0-9].so.1.0");
	if (!pythons.n)
		skip();
	for (size_t i = 0; i < pythons.n; i++)
		read_file(pythons.path[i]);
	print_message("    %zu arm64 interpreters\n", pythons.n);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
