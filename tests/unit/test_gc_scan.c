// SPDX-License-Identifier: Apache-2.0
/*
 * Search for the GC function in small programs: a namesake in another module, an exit by tail call,
 * a program without PIE, and a program that cannot be probed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cpython/image_read.h"
#include "cpython/gc.h"

static char dir[] = "/tmp/underspan-test-XXXXXX";

/* Makes a file look like Python 3.9 without the GC function. */
#define PYTHON_3_9                                                                                 \
	"#include <stdio.h>\n"                                                                     \
	"long _PyRuntime[64] = {1};\n"                                                             \
	"const char *const texts[] = {\"3.9.18\", \"lib/python3.9\"};\n"                           \
	"int use(const char *, int);\n"                                                            \
	"int use(const char *s, int n) { return printf(s, n); }\n"

#define COLLECTOR                                                                                  \
	"static __attribute__((noinline)) int collect(int n, int debug)\n"                         \
	"{\n"                                                                                      \
	"	if (debug) use(\"gc: collecting generation %d...\\n\", n);\n"                            \
	"	if (n < 3) return use(\"few\", n + 1);\n"                                                \
	"	for (int i = 0; i < n; i++) debug += use(\"many\", i);\n"                                \
	"	return debug;\n"                                                                         \
	"}\n"                                                                                      \
	"int PyGC_Collect(int n) { return collect(n, texts[0][0]) + 1; }\n"                        \
	"int main(void) { return PyGC_Collect(2) + collect(1, 0); }\n"

#define NAMESAKE                                                                                   \
	"int use(const char *, int);\n"                                                            \
	"static __attribute__((noinline)) int collect(int n) { return use(\"other\", n) + n; }\n"  \
	"int other(int n) { return collect(n) + collect(n + 1); }\n"

static void write_file(const char *name, const char *text)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* Compiles in the test's directory and opens the result, unstripped and stripped. */
static void build(const char *flags, const char *sources, int *ret_fd, int *ret_stripped_fd)
{
	char command[512], path[64];

	snprintf(command, sizeof(command),
		 "cd %s && CC=$(command -v clang-19 || command -v clang || command -v cc) && "
		 "$CC -w -O2 %s -o whole %s && strip --strip-all -o bare whole",
		 dir, flags, sources);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/whole", dir);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/bare", dir);
	*ret_stripped_fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(*ret_fd >= 0 && *ret_stripped_fd >= 0);
}

static void read_image(int fd, struct python_image *ret)
{
	struct why why = {};

	if (python_image_read(fd, "fake", ret, &why))
		fail_msg("%s", why.text);
	assert_int_equal(ret->minor, 9);
	assert_int_equal(ret->micro, 18);
}

#ifdef __x86_64__
static const uint8_t return_code = 0xc3, tail_call_code = 0xe9;
enum { CODE_BYTE = 0 };
#else
static const uint8_t return_code = 0xd6, tail_call_code = 0x14;
enum { CODE_BYTE = 3 };
#endif

/* Whether an exit is an instruction of this kind. */
static bool leaves_by(const struct python_image *image, int fd, uint8_t code)
{
	for (uint32_t i = 0; i < image->n_gc_exit; i++) {
		off_t at = (off_t)image->gc_exit[i].file_offset + CODE_BYTE;
		uint8_t byte;

		if (pread(fd, &byte, 1, at) == 1 && byte == code)
			return true;
	}
	return false;
}

static void check_both(const char *flags)
{
	struct python_image whole, bare;
	int fd, bare_fd;

	build(flags, "python.c namesake.c", &fd, &bare_fd);
	read_image(fd, &whole);
	read_image(bare_fd, &bare);
	assert_int_equal(whole.gc_method, GC_METHOD_SYMBOL);
	assert_int_equal(bare.gc_method, GC_METHOD_SCAN);
	/* one of the two functions with the name */
	assert_int_equal(whole.n_gc_entry, 1);
	assert_true(leaves_by(&whole, fd, return_code));
	assert_true(leaves_by(&whole, fd, tail_call_code));
	assert_int_equal(bare.n_gc_entry, whole.n_gc_entry);
	assert_int_equal(bare.n_gc_exit, whole.n_gc_exit);
	assert_memory_equal(whole.gc_entry, bare.gc_entry, sizeof(whole.gc_entry));
	assert_memory_equal(whole.gc_exit, bare.gc_exit, sizeof(whole.gc_exit));
	close(fd);
	close(bare_fd);
}

static void test_namesake_and_tail_call(void **state)
{
	(void)state;
	write_file("python.c", PYTHON_3_9 COLLECTOR);
	write_file("namesake.c", NAMESAKE);
	check_both("-fPIC -shared");
	check_both("-fno-pie -no-pie -rdynamic");
}

/* Without exported symbols .symtab is used; without .symtab the file is not a Python. */
static void test_nothing_exported(void **state)
{
	struct python_image image;
	struct why why = {};
	int fd, bare_fd;

	(void)state;
	write_file("python.c", PYTHON_3_9 COLLECTOR);
	build("-fno-pie -no-pie", "python.c", &fd, &bare_fd);
	read_image(fd, &image);
	assert_int_equal(image.gc_method, GC_METHOD_SYMBOL);
	assert_int_equal(python_image_read(bare_fd, "fake", &image, &why), -ENOENT);
	assert_string_equal(why.text, "");
	close(fd);
	close(bare_fd);
}

#ifdef __x86_64__
/* A probe cannot tell whether a conditional jump out of the function is taken. */
static void test_conditional_tail_call(void **state)
{
	struct python_image whole, bare;
	int fd, bare_fd;

	(void)state;
	write_file("python.c", PYTHON_3_9
		   "const char message[] = \"gc: collecting generation %d...\\n\";\n"
		   "asm(\".text; .type collect,@function; collect: .cfi_startproc; "
		   "lea message(%rip), %rdi; test %esi, %esi; jne helper; ret; .cfi_endproc; "
		   ".size collect, . - collect; .type helper,@function; helper: .cfi_startproc; "
		   "xor %eax, %eax; ret; .cfi_endproc; .size helper, . - helper\");\n"
		   "int main(void) { return 0; }\n");
	build("-fpie -pie -rdynamic", "python.c", &fd, &bare_fd);
	read_image(fd, &whole);
	read_image(bare_fd, &bare);
	close(fd);
	close(bare_fd);
	assert_int_equal(whole.gc_method, GC_METHOD_NONE);
	assert_int_equal(bare.gc_method, GC_METHOD_NONE);
	assert_non_null(strstr(whole.gc_why.text, "conditional tail call"));
	assert_non_null(strstr(bare.gc_why.text, "conditional tail call"));
	assert_int_equal(whole.n_gc_entry, 0);
	assert_int_equal(whole.n_gc_exit, 0);
}
#endif

/* Contradicting texts give no version. */
static void test_contradicting_versions(void **state)
{
	struct python_image image;
	struct why why = {};
	int fd, bare_fd;

	(void)state;
	write_file("python.c", PYTHON_3_9 COLLECTOR
		   "const char *const more[] = {\"3.10.2\", \"/x/python3.10\"};\n");
	build("-fPIC -shared", "python.c", &fd, &bare_fd);
	assert_int_equal(python_image_read(fd, "/usr/lib/libpython3.9.so", &image, &why), -ENOTSUP);
	assert_non_null(strstr(why.text, "/usr/lib/libpython3.9.so"));
	assert_non_null(strstr(why.text, "version"));
	close(fd);
	close(bare_fd);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_namesake_and_tail_call),
		cmocka_unit_test(test_nothing_exported),
#ifdef __x86_64__
		cmocka_unit_test(test_conditional_tail_call),
#endif
		cmocka_unit_test(test_contradicting_versions),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
