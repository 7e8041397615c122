// SPDX-License-Identifier: Apache-2.0
/*
 * python_offsets_for() against live interpreters: data read at the offsets must equal the data
 * reported by the interpreter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "cpython/image_read.h"
#include "cpython/offsets.h"
#include "python_offsets.h"
#include "pythons.h"

extern char **environ;

/* Prints the expected data, then waits. */
static const char script[] =
	"import gc, sys, threading\n"
	"def waiting_function(): sys.stdin.read()\n"
	"other = threading.Thread(target=lambda: threading.Event().wait(60), daemon=True)\n"
	"other.start()\n"
	"for g in 0, 0, 1, 2, 1, 1: gc.collect(g)\n"
	"gc.disable()\n"
	"for s in gc.get_stats(): print(s['collections'], s['collected'], s['uncollectable'])\n"
	"print(threading.get_ident(), getattr(threading, 'get_native_id', int)())\n"
	"print(other.ident, getattr(other, 'native_id', 0), flush=True)\n"
	"waiting_function()\n";

struct target {
	pid_t pid;
	FILE *out;
	int in;
	uint64_t bias;
	struct python_image image;
	struct python_offsets offsets;
};

static uint64_t peek(const struct target *t, uint64_t address, size_t size)
{
	uint64_t v = 0;
	struct iovec local = { &v, size }, remote = { (void *)address, size };

	if (process_vm_readv(t->pid, &local, 1, &remote, 1, 0) != (ssize_t)size)
		fail_msg("cannot read %zu bytes at %#" PRIx64, size, address);
	return v;
}

static uint64_t pointer(const struct target *t, uint64_t address)
{
	return peek(t, address, 8);
}

static void start(struct target *t, const char *python)
{
	char *argv[] = { (char *)python, (char *)"-S", (char *)"-c", (char *)script, NULL };
	posix_spawn_file_actions_t actions;
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawn(&t->pid, python, &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	t->in = in[1];
	t->out = fdopen(out[0], "r");
	assert_non_null(t->out);
}

static void stop(struct target *t)
{
	close(t->in);
	fclose(t->out);
	waitpid(t->pid, NULL, 0);
}

/* A program without PIE runs at its file's addresses. */
static bool is_movable(int fd)
{
	Elf64_Ehdr eh;

	assert_int_equal(pread(fd, &eh, sizeof(eh), 0), sizeof(eh));
	return eh.e_type == ET_DYN;
}

/* Address of the first mapping of `image`. */
static uint64_t load_address(pid_t pid, const char *image)
{
	char path[64], line[PATH_MAX + 128], real[PATH_MAX];
	uint64_t start_va = 0;
	FILE *maps;

	assert_non_null(realpath(image, real));
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	assert_non_null(maps);
	while (!start_va && fgets(line, sizeof(line), maps)) {
		if (strstr(line, real))
			start_va = strtoull(line, NULL, 16);
	}
	fclose(maps);
	assert_int_not_equal(start_va, 0);
	return start_va;
}

static uint64_t find_thread(const struct target *t, uint64_t interp, uint64_t thread_id)
{
	uint64_t ts = pointer(t, interp + t->offsets.interp_threads_head);

	for (int i = 0; ts && i < 16; i++, ts = pointer(t, ts + t->offsets.tstate_next)) {
		assert_int_equal(pointer(t, ts + t->offsets.tstate_interp), interp);
		if (pointer(t, ts + t->offsets.tstate_thread_id) == thread_id)
			return ts;
	}
	fail_msg("no thread state of %#" PRIx64, thread_id);
	return 0;
}

static void check_stats(const struct target *t, uint64_t runtime, uint64_t interp)
{
	const struct python_offsets *o = &t->offsets;
	uint64_t base = o->gc_stats;

	base += o->gc_stats_kind == PYTHON_GC_STATS_IN_RUNTIME ? runtime : interp;
	if (o->gc_stats_kind == PYTHON_GC_STATS_RING)
		base = pointer(t, base);
	for (unsigned int k = 0; k < PYTHON_GENERATIONS; k++) {
		uint64_t want[3], at = base + k * o->gc_stats_size;

		assert_int_equal(fscanf(t->out, "%" SCNu64 " %" SCNu64 " %" SCNu64, &want[0],
					&want[1], &want[2]),
				 3);
		if (o->gc_stats_kind == PYTHON_GC_STATS_RING)
			at = base + o->gc_ring_start[k] +
			     peek(t, base + o->gc_ring_index[k], 1) * o->gc_stats_size;
		assert_int_equal(pointer(t, at + o->gc_collections), want[0]);
		assert_int_equal(pointer(t, at + o->gc_collected), want[1]);
		assert_int_equal(pointer(t, at + o->gc_uncollectable), want[2]);
		assert_true(want[0] > k % 2);
	}
}

/* The innermost Python frame of the main thread runs waiting_function, line 2 of "<string>". */
static void check_frame(const struct target *t, uint64_t ts)
{
	const struct python_offsets *o = &t->offsets;
	uint64_t from = o->tstate_cframe ? pointer(t, ts + o->tstate_cframe) : ts, frame, code;
	uint64_t name, filename;

	frame = pointer(t, from + o->tstate_frame);
	for (int i = 0; i < 8 && o->frame_owner_internal &&
			peek(t, frame + o->frame_owner, 1) >= o->frame_owner_internal;
	     i++)
		frame = pointer(t, frame + o->frame_previous);
	code = pointer(t, frame + o->frame_code) & ~(uint64_t)o->frame_code_tags;
	assert_int_equal(peek(t, code + o->code_firstlineno, 4), 2);
	name = pointer(t, code + o->code_name);
	assert_int_equal(pointer(t, name + o->unicode_length), strlen("waiting_function"));
	assert_memory_equal(&(uint64_t){ pointer(t, name + o->unicode_ascii_data) }, "waiting_", 8);
	filename = pointer(t, code + o->code_filename);
	assert_memory_equal(&(uint64_t){ pointer(t, filename + o->unicode_ascii_data) }, "<string>",
			    8);
	if (o->code_qualname)
		assert_int_equal(pointer(t, code + o->code_qualname), name);
	/* the next frame is the module's */
	frame = pointer(t, frame + o->frame_previous);
	code = pointer(t, frame + o->frame_code) & ~(uint64_t)o->frame_code_tags;
	assert_int_equal(peek(t, code + o->code_firstlineno, 4), 1);
}

/* Waits until the main thread sleeps in read(0): memory is stable then. */
static void wait_until_reading(pid_t pid)
{
	char path[64];
	long call, fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	for (int i = 0; i < 1000; i++, usleep(10000)) {
		FILE *f = fopen(path, "r");
		int n = f ? fscanf(f, "%ld %lx", &call, (unsigned long *)&fd) : 0;

		if (f)
			fclose(f);
		if (n == 2 && call == SYS_read && fd == 0)
			return;
	}
	fail_msg("the interpreter does not come to rest");
}

static void check_target(struct target *t)
{
	const struct python_offsets *o = &t->offsets;
	uint64_t runtime = t->image.runtime_va + t->bias, ids[4], interp, threads[2], gil;

	interp = pointer(t, runtime + o->runtime_interpreters_head);
	assert_int_equal(pointer(t, interp + o->interp_next), 0);
	check_stats(t, runtime, interp);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(fscanf(t->out, "%" SCNu64, &ids[i]), 1);
	wait_until_reading(t->pid);
	for (size_t i = 0; i < 2; i++) {
		threads[i] = find_thread(t, interp, ids[2 * i]);
		if (o->tstate_native_thread_id)
			assert_int_equal(pointer(t, threads[i] + o->tstate_native_thread_id),
					 ids[2 * i + 1]);
	}
	check_frame(t, threads[0]);

	gil = o->gil_kind == PYTHON_GIL_IN_RUNTIME ? runtime + o->gil : pointer(t, interp + o->gil);
	assert_int_equal(peek(t, gil + o->gil_locked, 4), 0);
	assert_int_equal(pointer(t, gil + o->gil_last_holder), threads[0]);
	if (o->gc_collecting_runtime)
		assert_int_equal(peek(t, runtime + o->gc_collecting_runtime, 4), 0);
	else
		assert_int_equal(peek(t, interp + o->gc_collecting_interp, 4), 0);
}

/* "…/lib/libpython3.X.so.1.0" belongs to "…/bin/python3.X"; a program is its own image. */
static void program_of(const char *image, char *ret, size_t size)
{
	const char *lib = strstr(image, "/lib/libpython");
	int minor;

	if (lib && sscanf(lib, "/lib/libpython3.%d", &minor) == 1)
		snprintf(ret, size, "%.*s/bin/python3.%d", (int)(lib - image), image, minor);
	else
		snprintf(ret, size, "%s", image);
}

static void test_living_interpreters(void **state)
{
	struct pythons pythons;
	unsigned int seen = 0;

	(void)state;
	pythons_find(&pythons);
	for (size_t i = 0; i < pythons.n; i++) {
		AUTO_CLOSE int fd = open(pythons.path[i], O_RDONLY | O_CLOEXEC);
		char program[PATH_MAX];
		struct why why = {};
		struct target t = {};

		if (python_image_read(fd, pythons.path[i], &t.image, &why))
			continue;
		if (python_offsets_for(&t.image, fd, &t.offsets, &why))
			fail_msg("%s: %s", pythons.path[i], why.text);
		program_of(pythons.path[i], program, sizeof(program));
		start(&t, program);
		/* wait for output: the process is initialized then */
		ungetc(fgetc(t.out), t.out);
		t.bias = is_movable(fd) ? load_address(t.pid, pythons.path[i]) : 0;
		check_target(&t);
		stop(&t);
		seen |= 1u << t.image.minor;
	}
	for (int minor = 8; minor <= 15; minor++) {
		if (seen & (1u << minor))
			print_message("    3.%d agrees\n", minor);
	}
	assert_true(seen & (1u << 11));
}

static void test_refused(void **state)
{
	AUTO_CLOSE int fd = open(DEBIAN_PYTHON, O_RDONLY | O_CLOEXEC);
	struct python_offsets offsets;
	struct python_image image;
	struct why why = {};

	(void)state;
	assert_int_equal(python_image_read(fd, DEBIAN_PYTHON, &image, &why), 0);

	image.minor = 13; /* the file has no such description */
	assert_int_equal(python_offsets_for(&image, fd, &offsets, &why), -EINVAL);
	image.runtime_file_offset = 1ULL << 62;
	assert_int_equal(python_offsets_for(&image, fd, &offsets, &why), -EINVAL);
	image.minor = 16;
	assert_int_equal(python_offsets_for(&image, fd, &offsets, &why), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_living_interpreters),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
