// SPDX-License-Identifier: Apache-2.0
/* Rows and sums of off_cpu become folded stacks: no time is counted twice or lost. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "commands/offcpu/folded.h"
#include "commands/offcpu/stacks.h"

struct row {
	uint32_t host_pid, host_tid, waker_host_tid;
	float weight;
	uint8_t idle;
	uint64_t duration_ns, off_ns;
	const char *comm, *thread_name, *state, *cause, *syscall, *waker_comm, *waker_thread_name;
	struct column_strings kernel_stack, user_stack, py_stack, waker_stack;
};

#define COL(kind, name) COLUMN(kind, struct row, name, #name, "")
static const struct column columns[] = {
	COL(COLUMN_U32, host_pid),
	COL(COLUMN_U32, host_tid),
	COL(COLUMN_U32, waker_host_tid),
	COL(COLUMN_F32, weight),
	COL(COLUMN_U8, idle),
	COL(COLUMN_U64, duration_ns),
	COL(COLUMN_STRING, comm),
	COL(COLUMN_STRING, thread_name),
	COL(COLUMN_STRING, state),
	COL(COLUMN_STRING, cause),
	COL(COLUMN_STRING, syscall),
	COL(COLUMN_STRING, waker_comm),
	COL(COLUMN_STRING, waker_thread_name),
	COL(COLUMN_STRINGS, kernel_stack),
	COL(COLUMN_STRINGS, user_stack),
	COL(COLUMN_STRINGS, py_stack),
	COL(COLUMN_STRINGS, waker_stack),
	COL(COLUMN_U64, off_ns),
};
static const struct table rows = { "ebpf_off_cpu", { columns }, { ARRAY_SIZE(columns) - 1 } };
static const struct table sums = { "ebpf_off_cpu_profile", { columns }, { ARRAY_SIZE(columns) } };

#define STRINGS(...)                                                                               \
	{ (const char *const[]){ __VA_ARGS__ },                                                    \
	  sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *) }

static struct row a_row(uint64_t ns)
{
	static const char *const kernel[] = { "futex_wait", "do_syscall_64" };
	static const char *const user[] = { "sem_wait", "main" };

	return (struct row){ .host_pid = 7,
			     .host_tid = 8,
			     .weight = 1,
			     .duration_ns = ns,
			     .off_ns = ns,
			     .comm = "python3",
			     .thread_name = "worker",
			     .state = "S",
			     .cause = "lock",
			     .syscall = "futex",
			     .kernel_stack = { kernel, 2 },
			     .user_stack = { user, 2 } };
}

static uint64_t value_of(const struct folded *folded, const char *text)
{
	struct folded_stack *stack;

	HASH_FIND_STR(folded->stacks, text, stack);
	return stack ? stack->value : 0;
}

#define NATIVE "worker;main;sem_wait;do_syscall_64;futex_wait;futex [lock]"

static void sums_make_up_for_what_is_no_row(void **state)
{
	struct row row = a_row(5000000), sum = a_row(7000000), preempted = a_row(900000);
	struct row other = a_row(333000);
	struct folded folded = { 0 };

	(void)state;
	row.py_stack = (struct column_strings)STRINGS("get (q.py:5)", "run (t.py:1)");
	row.idle = 1; /* from the Python stack, absent in sums */
	preempted.state = "R";
	preempted.cause = "preempt";
	preempted.syscall = "";
	other.user_stack = (struct column_strings)STRINGS("pthread_cond_wait", "main");
	offcpu_stacks_init(false, false);
	offcpu_stacks_row(&rows, &row);
	offcpu_stacks_row(&sums, &sum);
	offcpu_stacks_row(&sums, &preempted);
	offcpu_stacks_row(&sums, &other);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(value_of(&folded, "worker;run (t.py:1);get (q.py:5);futex [lock, idle]"),
			 5000);
	assert_int_equal(value_of(&folded, NATIVE), 2000);
	assert_int_equal(value_of(&folded, "worker;[preempt]"), 900);
	assert_int_equal(value_of(&folded, "worker;main;pthread_cond_wait;do_syscall_64;futex_wait;"
					   "futex [lock]"),
			 333);
	assert_int_equal(folded_total(&folded), 7000 + 900 + 333); /* the sums */
	folded_free(&folded);
	offcpu_stacks_free();
}

static void names_that_become_known_double_nothing(void **state)
{
	struct row row = a_row(5000000), sum = a_row(5100000);
	struct folded folded = { 0 };

	(void)state;
	/* the function's name was unknown for the row */
	row.user_stack = (struct column_strings)STRINGS("[libc.so.6]", "main");
	offcpu_stacks_init(false, false);
	offcpu_stacks_row(&rows, &row);
	offcpu_stacks_row(&sums, &sum);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), 5100);
	assert_int_equal(value_of(&folded, NATIVE), 100);
	folded_free(&folded);
	/* rows may precede the sums */
	offcpu_stacks_row(&rows, &row);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), 10000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void what_found_no_room_counts_once(void **state)
{
	struct row row = a_row(5000000), sum = a_row(1000000), rest = a_row(6000000);
	struct folded folded = { 0 };

	(void)state;
	rest.host_pid = rest.host_tid = 0;
	offcpu_stacks_init(false, false);
	offcpu_stacks_row(&rows, &row);
	offcpu_stacks_row(&sums, &sum);
	offcpu_stacks_row(&sums, &rest);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), 7000);
	assert_int_equal(value_of(&folded, "[found no room in the kernel];[lock]"), 2000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void wakers_lie_on_top(void **state)
{
	struct row row = a_row(5000000);
	struct folded folded = { 0 };

	(void)state;
	row.waker_host_tid = 9;
	row.waker_comm = "python3";
	row.waker_thread_name = "other";
	row.waker_stack = (struct column_strings)STRINGS("sem_post", "give");
	offcpu_stacks_init(true, false);
	offcpu_stacks_row(&rows, &row);
	row.waker_host_tid = 0;
	offcpu_stacks_row(&rows, &row);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(value_of(&folded, NATIVE ";--;sem_post;give;other"), 5000);
	assert_int_equal(value_of(&folded, NATIVE ";--;[no thread: a timer or a device]"), 5000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void there_is_an_end_to_threads(void **state)
{
	struct folded folded = { 0 };
	char name[32];
	uint64_t us = 0;

	(void)state;
	offcpu_stacks_init(false, false);
	for (uint32_t tid = 1; tid <= 120000; tid++) {
		struct row row = a_row(5000), sum = a_row(7000);

		snprintf(name, sizeof(name), "Thread-%u", tid);
		row.host_tid = sum.host_tid = tid;
		row.thread_name = sum.thread_name = name;
		offcpu_stacks_row(&rows, &row);
		offcpu_stacks_row(&sums, &sum);
		us += 7;
	}
	assert_false(offcpu_stacks_failed());
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), us);
	assert_true(HASH_COUNT(folded.stacks) <= 50002);
	assert_true(value_of(&folded, "[too many different stacks]") >= 5 * 70000);
	assert_int_equal(offcpu_stacks_waited_ns(5), 7000);
	assert_true(offcpu_stacks_waited_ns(119999) > NSEC_PER_SEC);
	folded_free(&folded);
	offcpu_stacks_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_make_up_for_what_is_no_row),
		cmocka_unit_test(names_that_become_known_double_nothing),
		cmocka_unit_test(what_found_no_room_counts_once),
		cmocka_unit_test(wakers_lie_on_top),
		cmocka_unit_test(there_is_an_end_to_threads),
	};

	return cmocka_run_group_tests_name("offcpu_stacks", tests, NULL, NULL);
}
