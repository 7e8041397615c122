// SPDX-License-Identifier: Apache-2.0
/*
 * Symbols of stripped files: debug file by build id (also in another root), by debug link, and
 * compressed, all made with objcopy as in distributions. The GC function is found at the same
 * addresses as before stripping; symbols of another build are not used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elf/debug_symbols.h"
#include "cpython/image_read.h"
#include "cpython/gc.h"
#include "elf/symbol_table.h"

static char dir[] = "/tmp/underspan-test-XXXXXX";

/* A program like Python 3.9 with a GC function, without moved parts in the unwind table. */
static const char source[] = "#include <stdio.h>\n"
			     "long _PyRuntime[64] = {1};\n"
			     "const char *const texts[] = {\"3.9.18\", \"lib/python3.9\"};\n"
			     "int use(const char *, int);\n"
			     "int use(const char *s, int n) { return printf(s, n); }\n"
			     "static __attribute__((noinline)) int collect(int n, int debug)\n"
			     "{\n"
			     "	if (debug) use(\"gc: collecting generation %d...\\n\", n);\n"
			     "	for (int i = 0; i < n; i++) debug += use(\"many\", i);\n"
			     "	return debug;\n"
			     "}\n"
			     "int PyGC_Collect(int n) { return collect(n, texts[0][0]) + 1; }\n"
			     "int main(void) { return PyGC_Collect(2) + collect(1, 0); }\n";

/* Runs a script in the test's directory. */
static void run(const char *script)
{
	char command[4096];

	snprintf(
		command, sizeof(command),
		"set -e; cd %s; CC=$(command -v clang-19 || command -v clang || command -v cc); %s",
		dir, script);
	if (system(command))
		fail_msg("%s", command);
}

static int open_file(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* Source of the symbols, or NULL. */
static const char *find(uint32_t host_pid, const char *name, struct python_image *ret)
{
	AUTO_CLOSE int fd = open_file(name);
	struct elf_file elf;
	struct why why = {};

	if (python_image_read_of(host_pid, fd, name, ret, &why))
		fail_msg("%s", why.text);
	assert_int_equal(elf_file_open(fd, &elf, &why), 0);
	elf.host_pid = host_pid;
	python_gc_find(&elf, 1u << GC_METHOD_SYMBOL, ret);
	elf_file_close(&elf);
	return ret->gc_method == GC_METHOD_SYMBOL ? ret->gc_symbols : NULL;
}

static struct python_image whole;

static void check_same(const struct python_image *image)
{
	assert_int_equal(image->n_gc_entry, 1);
	assert_int_equal(image->gc_entry[0].va, whole.gc_entry[0].va);
	assert_int_equal(image->n_gc_exit, whole.n_gc_exit);
	for (uint32_t i = 0; i < whole.n_gc_exit; i++)
		assert_int_equal(image->gc_exit[i].file_offset, whole.gc_exit[i].file_offset);
}

static void test_own_table(void **state)
{
	(void)state;
	assert_string_equal(find(0, "whole", &whole), debug_source_text(DEBUG_OWN));
	assert_int_equal(whole.n_gc_entry, 1);
	assert_true(whole.n_gc_exit >= 1);
}

static void test_nothing_left(void **state)
{
	struct python_image image;

	(void)state;
	assert_null(find(0, "stripped", &image));
}

static void test_named_file(void **state)
{
	static const char *const places[] = { "linked.debug", ".debug/linked.debug" };
	struct python_image image;

	(void)state;
	run("objcopy --only-keep-debug whole linked.debug;"
	    "objcopy --add-gnu-debuglink=linked.debug stripped linked; mkdir -p .debug");
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		assert_string_equal(find(0, "linked", &image), debug_source_text(DEBUG_LINK));
		check_same(&image);
		if (i == 0)
			run("mv linked.debug .debug/");
	}
	/* without build ids the checksum of the complete file decides */
	run("mv .debug/linked.debug .; objcopy --remove-section=.note.gnu.build-id linked bare");
	assert_string_equal(find(0, "bare", &image), debug_source_text(DEBUG_LINK));
	run("printf x >>linked.debug");
	assert_null(find(0, "bare", &image));
}

/* Bytes read by this process so far. */
static unsigned long long bytes_read(void)
{
	AUTO_FCLOSE FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "rchar: %llu", &n), 1);
	return n;
}

/* For a checksum a whole file is read, of all candidates a single one, and none of any size. */
static void test_large_files_are_read_once(void **state)
{
	const unsigned long long size = 2 * (32 << 20); /* find() searches twice */
	struct python_image image;
	unsigned long long before;

	(void)state;
	run("for f in stripped whole; do objcopy --remove-section .note.gnu.build-id $f no_id.$f; done;"
	    "objcopy --only-keep-debug no_id.whole sparse.debug;"
	    "objcopy --add-gnu-debuglink=sparse.debug no_id.stripped sparse;"
	    "truncate -s 32M sparse.debug; mkdir -p .debug; cp --sparse=always sparse.debug .debug");
	before = bytes_read();
	assert_null(find(0, "sparse", &image));
	assert_in_range(bytes_read() - before, size, size + (4 << 20));
	run("rm .debug/sparse.debug; truncate -s 1G sparse.debug");
	before = bytes_read();
	assert_null(find(0, "sparse", &image));
	assert_in_range(bytes_read() - before, 0, 4 << 20);
}

static void test_another_build(void **state)
{
	struct python_image image;

	(void)state;
	run("sed 's/many/else/' whole.c >other.c; $CC -O1 -g -Wl,--build-id -o other other.c;"
	    "objcopy --only-keep-debug other linked.debug");
	assert_null(find(0, "linked", &image));
}

/* As in rpm: symbols not exported, compressed. */
static void test_compressed(void **state)
{
	struct symbol_table table = { 0 };
	struct python_image image;
	AUTO_CLOSE int fd = -1;

	(void)state;
	run("nm -D whole --format=posix --defined-only | awk '{print $1}' | sort >exported;"
	    "nm whole --format=posix --defined-only | awk '$2 ~ /[tT]/ {print $1}' | sort >all;"
	    "comm -13 exported all >kept; objcopy --only-keep-debug whole mini;"
	    "objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=kept mini;"
	    "xz -k -f mini; objcopy --add-section .gnu_debugdata=mini.xz stripped with_mini");
	assert_string_equal(find(0, "with_mini", &image), debug_source_text(DEBUG_MINI));
	check_same(&image);
	fd = open_file("with_mini");
	assert_int_equal(symbol_table_read_elf(&table, fd, 0), 0);
	assert_string_equal(symbol_table_find(&table, whole.gc_entry[0].va + 1), "collect");
	symbol_table_free(&table);
}

static void test_a_bomb_is_not_unpacked(void **state)
{
	struct python_image image;

	(void)state;
	run("head -c 300000000 /dev/zero | xz -0 >bomb.xz;"
	    "objcopy --add-section .gnu_debugdata=bomb.xz stripped with_bomb");
	assert_null(find(0, "with_bomb", &image));
}

/* A process with the debug file in its root. */
static pid_t start_in_root(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (!chroot(dir) && !chdir("/"))
			pause();
		_exit(1);
	}
	return pid;
}

static void test_build_id_in_the_process_root(void **state)
{
	struct python_image image;
	pid_t pid;

	(void)state;
	if (geteuid())
		skip(); /* chroot() requires root */
	run("objcopy --only-keep-debug whole whole.debug;"
	    "id=$(readelf -n whole | sed -n 's/.*Build ID: //p');"
	    "mkdir -p usr/lib/debug/.build-id/${id%${id#??}};"
	    "mv whole.debug usr/lib/debug/.build-id/${id%${id#??}}/${id#??}.debug");
	pid = start_in_root();
	for (int i = 0; i < 100; i++) {
		if (find((uint32_t)pid, "stripped", &image))
			break;
		usleep(10000); /* the child has not called chroot() so far */
	}
	assert_string_equal(find((uint32_t)pid, "stripped", &image),
			    debug_source_text(DEBUG_BUILD_ID));
	check_same(&image);
	/* a FIFO instead is ignored without blocking */
	run("f=$(find usr -name '*.debug'); rm $f; mkfifo $f");
	assert_null(find((uint32_t)pid, "stripped", &image));
	/* links do not lead out of the root */
	run("f=$(find usr -name '*.debug'); rm $f; ln -s $PWD/whole $f");
	assert_null(find((uint32_t)pid, "stripped", &image));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int set_up(void **state)
{
	char path[64];
	FILE *f;

	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/whole.c", dir);
	f = fopen(path, "w");
	if (!f)
		return -1;
	fputs(source, f);
	fclose(f);
	run("$CC -O1 -g -Wl,--build-id -rdynamic -o whole whole.c; strip -o stripped whole");
	return 0;
}

static int clean_up(void **state)
{
	(void)state;
	run("rm -rf \"$PWD\"");
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_table),
		cmocka_unit_test(test_nothing_left),
		cmocka_unit_test(test_named_file),
		cmocka_unit_test(test_large_files_are_read_once),
		cmocka_unit_test(test_another_build),
		cmocka_unit_test(test_compressed),
		cmocka_unit_test(test_a_bomb_is_not_unpacked),
		cmocka_unit_test(test_build_id_in_the_process_root),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
