// SPDX-License-Identifier: Apache-2.0
/* Python stacks of CPython's library, of idle and busy threads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "trackers/off_cpu_idle.h"

#define WORK  "_worker (/usr/lib/python3.11/concurrent/futures/thread.py:81)"
#define WAIT  "wait (/usr/lib/python3.11/threading.py:320)"
#define EVENT "wait (/usr/lib/python3.11/threading.py:629)"
#define GET   "get (/usr/lib/python3.11/queue.py:171)"
#define JOIN  "join (/usr/lib/python3.11/threading.py:1112)"
#define BEGIN                                                                                      \
	"_bootstrap_inner (/usr/lib/python3.11/threading.py:1038)",                                \
		"_bootstrap (/usr/lib/python3.11/threading.py:995)"
#define RUN "run (/usr/lib/python3.11/threading.py:975)"

#define WAITS(...)                                                                                 \
	off_cpu_waits_for_work(&(struct column_strings){                                           \
		(const char *const[]){ __VA_ARGS__ },                                              \
		sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *) })

static void workers_of_pools_wait_for_work(void **state)
{
	(void)state;
	assert_true(WAITS(WORK, RUN, BEGIN));
	assert_true(WAITS("_worker (/zip.zip/concurrent/futures/thread.py:1)", RUN, BEGIN));
	assert_true(
		WAITS(WAIT, "handler_thread (/app/site-packages/waitress/task.py:80)", RUN, BEGIN));
	assert_true(WAITS("_recv (/usr/lib/python3.11/multiprocessing/connection.py:382)",
			  "_recv_bytes (/usr/lib/python3.11/multiprocessing/connection.py:430)",
			  "recv_bytes (/usr/lib/python3.11/multiprocessing/connection.py:216)",
			  "get (/usr/lib/python3.11/multiprocessing/queues.py:103)",
			  "_process_worker (/usr/lib/python3.11/concurrent/futures/process.py:244)",
			  "run (/usr/lib/python3.11/multiprocessing/process.py:108)"));
}

static void threads_that_are_there_to_be_given_things_wait_for_work(void **state)
{
	(void)state;
	assert_true(WAITS(WAIT, GET, "consume (app.py:7)", RUN, BEGIN));
	assert_true(WAITS(WAIT, GET, "run (app.py:7)", BEGIN));
	assert_true(WAITS(WAIT, "consume (app.py:7)", RUN, BEGIN));
	assert_true(WAITS("Condition.wait (/usr/lib/python3.13/threading.py:359)",
			  "Queue.get (/usr/lib/python3.13/queue.py:210)",
			  "App.start.<locals>.consume (app.py:7)",
			  "Thread.run (/usr/lib/python3.13/threading.py:994)",
			  "Thread._bootstrap_inner (/usr/lib/python3.13/threading.py:1041)",
			  "Thread._bootstrap (/usr/lib/python3.13/threading.py:1012)"));
	assert_true(WAITS(WAIT, EVENT, "every_minute (app.py:7)", RUN, BEGIN));
	assert_true(WAITS(WAIT, EVENT, "run (/usr/lib/python3.11/threading.py:1401)", BEGIN));
	assert_true(WAITS("wait (threading.py:1)", "get (queue.py:2)", "f (a.py:3)",
			  "run (threading.py:4)", "_bootstrap_inner (threading.py:5)",
			  "_bootstrap (threading.py:6)"));
}

static void what_takes_time_is_not_idle(void **state)
{
	(void)state;
	/* a lock, in the thread's own function or deeper */
	assert_false(WAITS("consume (app.py:7)", RUN, BEGIN));
	assert_false(WAITS("handle (app.py:9)", WORK, RUN, BEGIN));
	assert_false(WAITS(WAIT, "result (/usr/lib/python3.11/concurrent/futures/_base.py:451)",
			   "handle (app.py:9)", WORK, RUN, BEGIN));
	/* a result through a queue */
	assert_false(WAITS(WAIT, GET, "ask (app.py:3)", "handle (app.py:9)", RUN, BEGIN));
	assert_false(WAITS(WAIT, GET, "ask (app.py:3)", "handle (app.py:9)", WORK, RUN, BEGIN));
	/* the main thread */
	assert_false(WAITS(WAIT, GET, "main (app.py:3)", "<module> (app.py:9)"));
	assert_false(WAITS(WAIT, GET, "<module> (app.py:9)"));
	assert_false(WAITS(JOIN, "consume (app.py:7)", RUN, BEGIN));
	/* names of other files */
	assert_false(WAITS("_worker (/app/threads.py:81)", RUN, BEGIN));
	assert_false(WAITS("not_worker (/x/concurrent/futures/thread.py:81)", RUN, BEGIN));
	assert_false(WAITS(WAIT, "get (/app/my_queue.py:1)", "f (app.py:7)", RUN, BEGIN));
}

static void texts_that_are_no_places_say_nothing(void **state)
{
	(void)state;
	assert_false(off_cpu_waits_for_work(&(struct column_strings){ NULL, 0 }));
	assert_false(WAITS("<gone>"));
	assert_false(WAITS("<unread>", "<cut>"));
	assert_false(WAITS("wait ("));
	assert_false(WAITS(":", " (", "wait (:"));
	assert_false(WAITS(WAIT, GET));
	assert_false(WAITS(WAIT, GET, "consume (app.py:7)", "<cut>"));
	assert_false(WAITS(WAIT, GET, "consume (app.py:7)", RUN, BEGIN, "<cut>"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_of_pools_wait_for_work),
		cmocka_unit_test(threads_that_are_there_to_be_given_things_wait_for_work),
		cmocka_unit_test(what_takes_time_is_not_idle),
		cmocka_unit_test(texts_that_are_no_places_say_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
