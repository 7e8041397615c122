// SPDX-License-Identifier: Apache-2.0
/* Sums by lock, and storms, of known waits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/util.h"
#include "commands/offcpu/locks.h"

enum { MS = 1000, T0 = 1000000 };
#define LOCK_A 0x7f0011224470
#define LOCK_B 0x7f0011224480

static const char *const in_app[] = { "work (/srv/app/cache.py:42)", "run (/srv/app/main.py:7)" };
static const char *const in_wait[] = { "Condition.wait (/usr/lib/python3.11/threading.py:327)",
				       "Queue.get (/usr/lib/python3.11/queue.py:171)",
				       "work (/srv/app/jobs.py:5)" };
static const char *const in_enter[] = {
	"Condition.__enter__ (/usr/lib/python3.11/threading.py:271)",
	"Queue.put (/usr/lib/python3.11/queue.py:137)", "work (/srv/app/jobs.py:9)"
};
static const char *const in_c[] = { "__lll_lock_wait", "pthread_mutex_lock", "take", "main" };
static const char *const in_cond[] = { "__pthread_cond_wait", "take" };

#define STACK(frames) ((struct column_strings){ frames, ARRAY_SIZE(frames) })

/* A wait in app code from begin to end, in ms. */
static struct lock_wait wait_of(uint32_t tid, uint64_t address, int begin, int end, uint32_t waker)
{
	return (struct lock_wait){ .host = "web-1",
				   .boot_id = "boot",
				   .thread = "waiter",
				   .waker = waker ? "holder" : "",
				   .host_pid = 7,
				   .host_tid = tid,
				   .waker_host_tid = waker,
				   .address = address,
				   .begin_us = T0 + begin * MS,
				   .wake_us = T0 + end * MS,
				   .end_us = T0 + end * MS,
				   .weight = 1,
				   .thread_named = true,
				   .waker_named = true,
				   .py_stack = STACK(in_app) };
}

static const json_t *lock_at(const json_t *report, size_t i)
{
	return json_array_get(json_object_get(report, "locks"), i);
}

static const json_t *storm_at(const json_t *report, size_t i)
{
	return json_array_get(json_object_get(report, "storms"), i);
}

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name)) ?: "";
}

/*
 * Lock A: threads 1 and 2 wait since 0 and 10 ms, 20 wakes 1 at 30, 1 wakes 2 at 50. Lock B: one
 * wait that ends by its timeout.
 */
static void two_locks(void **state)
{
	struct lock_waits locks = { 0 };
	struct lock_wait waits[] = { wait_of(1, LOCK_A, 0, 30, 20), wait_of(2, LOCK_A, 10, 50, 1),
				     wait_of(3, LOCK_B, 0, 5, 0) };
	const json_t *wakers;
	json_t *report;

	(void)state;
	waits[1].weight = 2; /* sampled */
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
		locks_add(&locks, &waits[i]);
	report = locks_report(&locks);
	assert_int_equal(json_array_size(json_object_get(report, "locks")), 2);
	assert_string_equal(text(lock_at(report, 0), "address"), "0x7f0011224470");
	assert_string_equal(text(lock_at(report, 0), "host"), "web-1");
	assert_string_equal(text(lock_at(report, 0), "place"), "work (cache.py:42)");
	assert_true(number(lock_at(report, 0), "waits") == 3);
	assert_true(number(lock_at(report, 0), "ms") == 30 + 2 * 40);
	assert_true(number(lock_at(report, 0), "longest_ms") == 40);
	assert_true(number(lock_at(report, 0), "threads") == 2);
	assert_true(number(lock_at(report, 0), "at_once") == 2);
	wakers = json_object_get(lock_at(report, 0), "wakers");
	assert_int_equal(json_array_size(wakers), 2);
	/* thread 20 had it while others waited, from 0 to 30 ms; thread 1 from 30 to 50 ms */
	assert_true(number(json_array_get(wakers, 0), "host_tid") == 20);
	assert_true(number(json_array_get(wakers, 0), "held_ms") == 30);
	assert_true(number(json_array_get(wakers, 1), "host_tid") == 1);
	assert_true(number(json_array_get(wakers, 1), "held_ms") == 20);
	assert_true(json_is_true(json_object_get(lock_at(report, 0), "sampled")));
	assert_true(json_is_false(json_object_get(lock_at(report, 1), "sampled")));
	assert_true(number(lock_at(report, 1), "ms") == 5);
	assert_int_equal(json_array_size(json_object_get(lock_at(report, 1), "wakers")), 0);
	assert_int_equal(json_array_size(json_object_get(report, "storms")), 0);
	json_decref(report);
	locks_free(&locks);
}

/* The same address in a different process, and after a restart of the host, is a different lock. */
static void an_address_is_of_a_process(void **state)
{
	struct lock_waits locks = { 0 };
	struct lock_wait wait = wait_of(1, LOCK_A, 0, 30, 2);
	json_t *report;

	(void)state;
	locks_add(&locks, &wait);
	wait.host_pid = 8;
	locks_add(&locks, &wait);
	wait.boot_id = "next boot";
	locks_add(&locks, &wait);
	wait.host = "web-2";
	locks_add(&locks, &wait);
	report = locks_report(&locks);
	assert_int_equal(json_array_size(json_object_get(report, "locks")), 4);
	json_decref(report);
	locks_free(&locks);
}

/* Without an address: by place, no address claimed. */
static void not_known_which(void **state)
{
	struct lock_waits locks = { 0 };
	struct lock_wait waits[] = { wait_of(1, 0, 0, 10, 9), wait_of(2, 0, 0, 20, 9) };
	json_t *report;

	(void)state;
	locks_add(&locks, &waits[0]);
	locks_add(&locks, &waits[1]);
	report = locks_report(&locks);
	assert_int_equal(json_array_size(json_object_get(report, "locks")), 1);
	assert_true(json_is_null(json_object_get(lock_at(report, 0), "address")));
	assert_true(json_is_null(json_object_get(
		json_array_get(json_object_get(lock_at(report, 0), "wakers"), 0), "held_ms")));
	json_decref(report);
	locks_free(&locks);
}

static void storms(void **state)
{
	struct lock_waits locks = { 0 };
	struct lock_wait wait;
	json_t *report;

	(void)state;
	for (uint32_t i = 0; i < 50; i++) { /* released in turn, 20 ms each */
		wait = wait_of(100 + i, LOCK_A, 0, 20 * (int)(i + 1), i ? 99 + i : 1);
		locks_add(&locks, &wait);
		wait = wait_of(200 + i, 0, 0, 500, 2); /* idle, woken by one thread at once */
		wait.idle = true;
		wait.py_stack = STACK(in_wait);
		locks_add(&locks, &wait);
	}
	for (uint32_t i = 0; i < 9; i++) { /* too few */
		wait = wait_of(300 + i, LOCK_B, 0, 30, 3);
		locks_add(&locks, &wait);
	}
	report = locks_report(&locks);
	assert_int_equal(json_array_size(json_object_get(report, "locks")), 2);
	assert_int_equal(json_array_size(json_object_get(report, "storms")), 2);
	assert_string_equal(text(storm_at(report, 0), "said"),
			    "lock convoy: 50 threads waited at once for lock 0x7f0011224470, in "
			    "work (cache.py:42) (50 waits, 25500.0 ms in all)");
	assert_string_equal(text(storm_at(report, 1), "said"),
			    "thundering herd: thread holder woke 50 threads within 0.0 ms, in work "
			    "(jobs.py:5)");
	json_decref(report);
	locks_free(&locks);
}

/* The same waker twice: once in words, with the larger herd. */
static void herd_again(void **state)
{
	static const int moments[] = { 500, 900, 1300 }, threads[] = { 20, 30, 12 };
	struct lock_waits locks = { 0 };
	struct lock_wait wait;
	json_t *report;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(moments); k++) {
		for (uint32_t i = 0; i < (uint32_t)threads[k]; i++) {
			wait = wait_of(200 + i, 0, moments[k] - 100, moments[k], 2);
			wait.idle = true;
			wait.py_stack = STACK(in_wait);
			locks_add(&locks, &wait);
		}
	}
	report = locks_report(&locks);
	assert_int_equal(json_array_size(json_object_get(report, "storms")), 1);
	assert_string_equal(text(storm_at(report, 0), "said"),
			    "thundering herd: thread holder woke 30 threads within 0.0 ms, in work "
			    "(jobs.py:5); 3 times, this the most");
	json_decref(report);
	locks_free(&locks);
}

static bool is_lock_a(uint32_t host_pid, uint64_t address)
{
	(void)host_pid;
	return address == LOCK_A;
}

/* Of an address that is found to be a GIL, no wait is kept or added. */
static void no_lock(void **state)
{
	struct lock_waits locks = { 0 };
	struct lock_wait a = wait_of(100, LOCK_A, 0, 20, 1), b = wait_of(101, LOCK_B, 0, 20, 1);

	(void)state;
	locks_add(&locks, &a);
	locks_add(&locks, &b);
	locks.is_no_lock = is_lock_a;
	locks_drop(&locks);
	locks_add(&locks, &a);
	assert_int_equal(locks.n, 1);
	assert_int_equal(locks.records[0].of.address, LOCK_B);
	locks_free(&locks);
}

static void places(void **state)
{
	const struct column_strings none = { 0 };
	bool message;

	(void)state;
	assert_string_equal(locks_place(STACK(in_app), none, &message), in_app[0]);
	assert_false(message);
	assert_string_equal(locks_place(STACK(in_wait), none, &message), in_wait[2]);
	assert_true(message);
	assert_string_equal(locks_place(STACK(in_enter), none, &message), in_enter[2]);
	assert_false(message);
	assert_string_equal(locks_place(none, STACK(in_c), &message), "take");
	assert_false(message);
	assert_string_equal(locks_place(none, STACK(in_cond), &message), "take");
	assert_true(message);
	assert_string_equal(locks_place(none, none, &message), "");
}

/* Nothing, and hostile names. */
static void odd_waits(void **state)
{
	static char long_name[100000];
	static const char *const frames[] = { long_name, "", "(:", " (", ":1" };
	struct lock_waits locks = { 0 };
	struct lock_wait wait = wait_of(1, LOCK_A, 5, 1, 1); /* ends before its begin */
	json_t *report = locks_report(&locks);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(report, "locks")), 0);
	json_decref(report);
	memset(long_name, 'x', sizeof(long_name) - 1);
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
		wait.py_stack = (struct column_strings){ frames + i, 1 };
		wait.thread = wait.waker = wait.host = long_name;
		locks_add(&locks, &wait);
	}
	report = locks_report(&locks);
	assert_int_equal(json_array_size(json_object_get(report, "locks")), 1);
	json_decref(report);
	locks_free(&locks);
}

/* Of a lock, the name of the thread that ended the wait. */
static void printable_names(void **state)
{
	struct lock_waits locks = { 0 };
	struct lock_wait wait = wait_of(1, LOCK_A, 0, 5, 2);
	json_t *report;
	const json_t *wakers;

	(void)state;
	wait.waker = "t\033[2J\302\233\342\200\256\377";
	locks_add(&locks, &wait);
	report = locks_report(&locks);
	assert_non_null(report);
	wakers = json_object_get(lock_at(report, 0), "wakers");
	assert_string_equal(json_string_value(json_object_get(json_array_get(wakers, 0), "thread")),
			    "t?[2J???");
	json_decref(report);
	locks_free(&locks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_locks),	   cmocka_unit_test(an_address_is_of_a_process),
		cmocka_unit_test(not_known_which), cmocka_unit_test(storms),
		cmocka_unit_test(herd_again),	   cmocka_unit_test(no_lock),
		cmocka_unit_test(places),	   cmocka_unit_test(odd_waits),
		cmocka_unit_test(printable_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
