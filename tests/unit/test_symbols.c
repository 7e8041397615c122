// SPDX-License-Identifier: Apache-2.0
/* Names of a user stack are valid until the end of the row, despite re-reads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "rows/symbols.h"
#include "rows/row_context.h"
#include "workers/readers.h"

enum { CODE_BYTES = 4096 };

/* Code without a file, as made by a JIT. Not adjacent to other such code: the kernel would merge
 * the mappings. */
static uint64_t make_code(void)
{
	char *room = mmap(NULL, 3 * CODE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(room != MAP_FAILED);
	assert_int_equal(mprotect(room + CODE_BYTES, CODE_BYTES, PROT_READ | PROT_EXEC), 0);
	return (uint64_t)(uintptr_t)room + CODE_BYTES + 64;
}

static struct row_context context;

/* Unknown addresses cause a re-read of mappings, at most once a second. */
static void let_a_second_pass(void)
{
	nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 100 * 1000000 }, NULL);
}

/* Repeats the row until all look-ups are done. */
static void let_it_be_read(uint32_t pid, const __u64 *stack)
{
	const char *names[2];

	do {
		readers_complete(NULL, NULL);
		context = (struct row_context){ 0 };
		symbols_next_row();
		symbols_user_stack(&context, pid, stack, 2, names);
	} while (context.waits_for);
	assert_false(context.unread);
}

static int start(void **state)
{
	(void)state;
	mallopt(M_PERTURB, 0x55); /* freed memory is overwritten */
	return 0;
}

static int end(void **state)
{
	(void)state;
	readers_stop();
	symbols_done();
	return 0;
}

static void assert_all_anonymous(const char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_string_equal(names[i], "[anonymous]");
}

static void within_a_stack(void **state)
{
	__u64 stack[3] = { make_code() };
	const char *names[2];

	(void)state;
	symbols_process_appeared((uint32_t)getpid());
	let_a_second_pass();
	stack[1] = make_code();
	let_it_be_read((uint32_t)getpid(), stack);
	symbols_next_row();
	assert_int_equal(symbols_user_stack(&context, (uint32_t)getpid(), stack, 2, names), 2);
	assert_all_anonymous(names, 2);
}

static void from_one_stack_to_the_next(void **state)
{
	__u64 first[2] = { make_code() }, second[2] = { 0 };
	const char *names[2];

	(void)state;
	symbols_process_appeared((uint32_t)getpid());
	let_a_second_pass();
	second[0] = make_code();
	let_it_be_read((uint32_t)getpid(), first);
	let_it_be_read((uint32_t)getpid(), second);
	symbols_next_row();
	assert_int_equal(symbols_user_stack(&context, (uint32_t)getpid(), first, 1, &names[0]), 1);
	assert_int_equal(symbols_user_stack(&context, (uint32_t)getpid(), second, 1, &names[1]), 1);
	assert_all_anonymous(names, 2);
}

/* More processes than the cache holds: all are evicted, the names must stay valid. */
static void when_processes_are_forgotten(void **state)
{
	__u64 stack[2] = { make_code() };
	const char *names[2];

	(void)state;
	symbols_process_appeared((uint32_t)getpid());
	let_it_be_read((uint32_t)getpid(), stack);
	symbols_next_row();
	assert_int_equal(symbols_user_stack(&context, (uint32_t)getpid(), stack, 1, &names[0]), 1);
	for (uint32_t pid = 1; pid <= 600; pid++) /* above all existing pids */
		symbols_user_stack(&context, (1U << 22) + pid, stack, 1, &names[1]);
	assert_all_anonymous(names, 1);
	assert_string_equal(names[1], "<unread>");
	let_it_be_read((1U << 22) + 600, stack);
	symbols_user_stack(&context, (1U << 22) + 600, stack, 1, &names[1]);
	assert_string_equal(names[1], "[unknown]");
}

static void functions(void **state)
{
	const __u64 stack[2] = { (__u64)(uintptr_t)symbols_next_row };
	const char *name;

	(void)state;
	let_it_be_read((uint32_t)getpid(), stack);
	assert_int_equal(symbols_user_stack(&context, (uint32_t)getpid(), stack, 1, &name), 1);
	assert_string_equal(name, "symbols_next_row");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(within_a_stack),
		cmocka_unit_test(from_one_stack_to_the_next),
		cmocka_unit_test(when_processes_are_forgotten),
		cmocka_unit_test(functions),
	};

	return cmocka_run_group_tests_name("symbols", tests, start, end);
}
