// SPDX-License-Identifier: Apache-2.0
/* Jobs of a process are done in order; a stalled job does not delay other processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/budget.h"
#include "rows/row_context.h"
#include "workers/readers.h"
#include "base/util.h"

enum { MANY = 331 };

struct test_job {
	struct job job;
	int number;
	sem_t *wait_for;
};

static int order[MANY * 2];
static size_t n_run, n_done;
static int n_running_of[3], most_running_of_one;

static void run(struct job *job)
{
	struct test_job *j = (struct test_job *)job;
	int now;

	if (j->wait_for)
		sem_wait(j->wait_for);
	now = __atomic_add_fetch(&n_running_of[job->host_pid], 1, __ATOMIC_SEQ_CST);
	if (now > most_running_of_one)
		most_running_of_one = now;
	order[__atomic_fetch_add(&n_run, 1, __ATOMIC_SEQ_CST)] = j->number;
	__atomic_fetch_sub(&n_running_of[job->host_pid], 1, __ATOMIC_SEQ_CST);
}

static void done(struct job *job)
{
	n_done++;
	free(job);
}

static bool give(uint32_t host_pid, int number, sem_t *wait_for)
{
	struct test_job *j = calloc(1, sizeof(*j));

	*j = (struct test_job){ .job = { .host_pid = host_pid, .run = run, .done = done },
				.number = number,
				.wait_for = wait_for };
	if (readers_submit(&j->job))
		return true;
	free(j);
	return false;
}

static void take_until(size_t n)
{
	while (n_done < n) {
		struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

		poll(&fd, 1, 10);
		readers_complete(NULL, NULL);
	}
}

static int start_anew(void **state)
{
	(void)state;
	n_run = n_done = 0;
	most_running_of_one = 0;
	return 0;
}

static void test_in_order(void **state)
{
	int next[3] = { 0 };

	(void)state;
	for (int i = 0; i < MANY; i++) {
		assert_true(give(1, 2 * i, NULL));
		assert_true(give(2, 2 * i + 1, NULL));
	}
	take_until(2 * MANY);
	for (int i = 0; i < 2 * MANY; i++) {
		int of = order[i] % 2;

		assert_int_equal(order[i] / 2, next[of]);
		next[of]++;
	}
	assert_int_equal(most_running_of_one, 1);
}

static void wait_until_stalled(uint32_t host_pid)
{
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

	while (!readers_stalled_by(host_pid)) {
		nanosleep(&pause, NULL);
		readers_complete(NULL, NULL);
	}
}

static void test_a_stalled_job(void **state)
{
	struct row_context context = { 0 };
	sem_t hold;

	(void)state;
	sem_init(&hold, 0, 0);
	assert_true(give(1, 0, &hold));
	assert_true(give(1, 1, NULL));
	for (int i = 0; i < MANY; i++)
		assert_true(give(2, 10 + i, NULL));
	take_until(MANY); /* process 2, on a second thread */
	assert_int_equal(n_run, MANY);
	/* without a round in these seconds, the job is not stalled */
	nanosleep(&(struct timespec){ .tv_sec = 3 }, NULL);
	assert_false(readers_stalled_by(1));
	wait_until_stalled(1);
	assert_false(readers_stalled_by(2));
	assert_false(give(1, 2, NULL));
	assert_true(give(2, 3, NULL));
	assert_true(readers_busy());
	take_until(MANY + 1);
	assert_false(readers_busy());
	row_waits_for(&context, 1); /* stalled: the row does not wait */
	assert_int_equal(context.waits_for, 0);
	row_waits_for(&context, 2);
	assert_int_equal(context.waits_for, 2);
	sem_post(&hold);
	take_until(MANY + 3);
	assert_false(readers_stalled_by(1));
	assert_int_equal(order[MANY + 1], 0);
	assert_int_equal(order[MANY + 2], 1);
	assert_true(give(1, 2, NULL));
	take_until(MANY + 4);
}

static void test_stopping(void **state)
{
	(void)state;
	for (int i = 0; i < MANY; i++)
		assert_true(give(1, i, NULL));
	readers_stop();
	assert_int_equal(n_done, MANY); /* executed or not */
}

/* Starts a process with the given slot that takes and keeps `bytes`; 0: refused. */
static pid_t reader_with(uint32_t slot, size_t bytes)
{
	int answer[2], err = pipe(answer);
	bool taken = false;
	pid_t pid;

	assert_int_equal(err, 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* also after a failure */
		budget_use_slot(slot);
		taken = budget_take(bytes);
		_exit(write(answer[1], &taken, sizeof(taken)) == sizeof(taken) && taken ? pause()
											: 1);
	}
	close(answer[1]);
	assert_int_equal(read(answer[0], &taken, sizeof(taken)), sizeof(taken));
	close(answer[0]);
	if (!taken)
		waitpid(pid, NULL, 0);
	return taken ? pid : 0;
}

/* All readers of files share a budget; a file has a limit, too. */
static void test_budget(void **state)
{
	const size_t mib = 1 << 20;
	pid_t first, second, third;

	(void)state;
	assert_int_equal(budget_start(64 * mib), 0);
	assert_int_equal(budget_of_file(), 8 * mib);
	assert_int_equal(reader_with(1, 8 * mib + 1), 0);
	assert_int_equal(budget_used(), 0);
	first = reader_with(1, 6 * mib);
	second = reader_with(2, 8 * mib);
	assert_true(first && second);
	assert_int_equal(reader_with(1, 3 * mib), 0); /* the same file has 6 */
	assert_int_equal(reader_with(3, 4 * mib), 0); /* all files have 14 of 16 */
	assert_int_equal(budget_used(), 14 * mib);
	kill(first, SIGKILL);
	waitpid(first, NULL, 0);
	budget_slot_ended(1);
	third = reader_with(3, 4 * mib);
	assert_true(third);
	assert_int_equal(budget_used(), 12 * mib);
	kill(second, SIGKILL);
	kill(third, SIGKILL);
	waitpid(second, NULL, 0);
	waitpid(third, NULL, 0);
	budget_slot_ended(2);
	budget_slot_ended(3);
	assert_int_equal(budget_used(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_in_order, start_anew),
		cmocka_unit_test_setup(test_a_stalled_job, start_anew),
		cmocka_unit_test_setup(test_stopping, start_anew),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
