// SPDX-License-Identifier: Apache-2.0
/* The pipeline: batches by rows and age, retries in order, bounded memory, counts that add up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/pipeline.h"
#include "base/clock.h"
#include "base/log.h"

struct number_row {
	uint64_t n;
};
static const struct column columns[] = { COLUMN(COLUMN_U64, struct number_row, n, "n", "UInt64") };
static const struct column columns_b[] = { COLUMN(COLUMN_U64, struct number_row, n, "b",
						  "UInt64") };
static const struct table table_a = { "a", { columns }, { 1 } };
static const struct table table_b = { "b", { columns_b }, { 1 } };
static const struct table *const tables[] = { &table_a, &table_b };

/* A sink that records batches and returns configured results. */
struct keeper {
	struct sink sink;
	pthread_mutex_t lock;
	struct buffer got[2];
	size_t batches, refusals; /* remaining SEND_RETRY results */
	enum send_result verdict; /* result afterwards */
	bool only_b;		  /* always SEND_RETRY for table a */
};

static enum send_result keep(struct sink *sink, const struct batch *batch, struct send_reply *reply)
{
	struct keeper *k = (struct keeper *)sink;
	enum send_result result = k->verdict;
	bool is_b = batch->body.len > 5 && batch->body.data[2] == 'b';

	pthread_mutex_lock(&k->lock);
	if (k->refusals || (k->only_b && !is_b)) {
		k->refusals -= k->refusals > 0;
		result = SEND_RETRY;
		why_fail(&reply->why, EIO, "told to");
	} else if (result == SEND_BROKEN) {
		why_fail(&reply->why, EIO, "told to");
	} else if (result == SEND_OK) {
		buffer_append(&k->got[is_b], batch->body.data, batch->body.len);
		k->batches++;
	}
	pthread_mutex_unlock(&k->lock);
	return result;
}

static void no_free(struct sink *sink)
{
	(void)sink;
}

static struct pipeline *start(struct keeper *k, uint64_t rows, uint64_t memory)
{
	const struct pipeline_limits limits = { .batch_rows = rows,
						.batch_bytes = 1 << 20,
						.batch_age_ns = NSEC_PER_SEC,
						.memory_bytes = memory };
	struct pipeline *p;
	struct why why;

	pthread_mutex_init(&k->lock, NULL);
	k->sink = (struct sink){ .name = "keeper", .send = keep, .free = no_free };
	assert_int_equal(pipeline_new(tables, 2, &limits, &k->sink, &p, &why), 0);
	return p;
}

static void add_numbers(struct pipeline *p, size_t table, uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n < to; n++)
		pipeline_add(p, table, &(struct number_row){ n });
}

static void assert_got_in_order(const struct buffer *got, uint64_t n)
{
	const char *at = got->data;
	char line[64];

	for (uint64_t i = 0; i < n; i++) {
		size_t len = (size_t)snprintf(line, sizeof(line), "{\"%c\":%llu}\n", got->data[2],
					      (unsigned long long)i);

		if ((size_t)(at - got->data) + len > got->len || memcmp(at, line, len))
			fail_msg("row %llu is missing or out of order", (unsigned long long)i);
		at += len;
	}
	assert_int_equal(at - got->data, got->len);
}

/* Number of rows reported as not delivered. */
static uint64_t finish(struct pipeline *p, uint64_t seconds)
{
	struct why why = { "0" };
	int err = pipeline_finish(p, clock_monotonic_ns() + seconds * NSEC_PER_SEC, &why);
	uint64_t n = strtoull(why.text, NULL, 10);

	assert_int_equal(err, n ? -EIO : 0);
	return n;
}

static void assert_counts_add_up(const struct pipeline_counts *c)
{
	assert_int_equal(c->rows, c->inserted + c->dropped_memory + c->dropped_refused + c->queued);
}

static void release(struct pipeline *p, struct keeper *k)
{
	pipeline_free(p);
	buffer_free(&k->got[0]);
	buffer_free(&k->got[1]);
}

static void rows_arrive_once_and_in_order(void **state)
{
	struct keeper k = { .verdict = SEND_OK };
	struct pipeline *p = start(&k, 100, 1 << 20);
	struct pipeline_counts c;

	(void)state;
	add_numbers(p, 0, 0, 1009);
	add_numbers(p, 1, 0, 17);
	assert_int_equal(finish(p, 5), 0);
	assert_got_in_order(&k.got[0], 1009);
	assert_got_in_order(&k.got[1], 17);
	assert_int_equal(k.batches, 12); /* 10 full and two partial batches */
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.inserted, 1009);
	assert_counts_add_up(&c);
	release(p, &k);
}

static void retries_keep_the_order(void **state)
{
	struct keeper k = { .verdict = SEND_OK, .refusals = 3 };
	struct pipeline *p = start(&k, 10, 1 << 20);
	struct pipeline_counts c;

	(void)state;
	add_numbers(p, 0, 0, 101);
	for (int i = 0; i < 100 && k.refusals; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000000 }, NULL);
	assert_int_equal(finish(p, 10), 0);
	assert_got_in_order(&k.got[0], 101);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.retries, 3);
	assert_counts_add_up(&c);
	release(p, &k);
}

static void a_failing_table_holds_no_other_up(void **state)
{
	struct keeper k = { .verdict = SEND_OK, .only_b = true };
	struct pipeline *p = start(&k, 10, 1 << 20);
	struct pipeline_counts a, b;

	(void)state;
	add_numbers(p, 0, 0, 50);
	add_numbers(p, 1, 0, 50);
	assert_int_equal(finish(p, 1), 50); /* rows of table a are undelivered and reported */
	assert_got_in_order(&k.got[1], 50);
	pipeline_read_counts(p, 0, &a);
	pipeline_read_counts(p, 1, &b);
	assert_int_equal(a.queued, 50);
	assert_int_equal(b.inserted, 50);
	assert_counts_add_up(&a);
	release(p, &k);
}

static void refused_rows_are_counted(void **state)
{
	struct keeper k = { .verdict = SEND_REFUSED };
	struct pipeline *p = start(&k, 10, 1 << 20);
	struct pipeline_counts c;

	(void)state;
	add_numbers(p, 0, 0, 31);
	assert_int_equal(finish(p, 5), 31);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.dropped_refused, 31);
	assert_counts_add_up(&c);
	release(p, &k);
}

static void memory_is_bounded_and_the_oldest_goes(void **state)
{
	struct keeper k = { .verdict = SEND_OK, .refusals = SIZE_MAX };
	struct pipeline *p = start(&k, 100, 10000);
	struct pipeline_counts c;

	(void)state;
	add_numbers(p, 0, 0, 100000); /* about 1.2 MB of JSON into 10 kB */
	pipeline_read_counts(p, 0, &c);
	assert_true(c.dropped_memory > 95000);
	assert_true(c.queued > 100);
	assert_counts_add_up(&c);
	pthread_mutex_lock(&k.lock);
	k.refusals = 0;
	pthread_mutex_unlock(&k.lock);
	assert_int_equal(finish(p, 10), c.dropped_memory);
	assert_non_null(memmem(k.got[0].data, k.got[0].len, "{\"n\":99999}\n", 12));
	assert_null(memmem(k.got[0].data, k.got[0].len, "{\"n\":500}\n", 10));
	release(p, &k);
}

static void age_closes_a_batch(void **state)
{
	struct keeper k = { .verdict = SEND_OK };
	struct pipeline *p = start(&k, 1000, 1 << 20);
	struct pipeline_counts c;

	(void)state;
	add_numbers(p, 0, 0, 1);
	assert_int_equal(pipeline_tick(p, NULL), 0);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.inserted, 0);
	nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 50 * 1000000 }, NULL);
	assert_int_equal(pipeline_tick(p, NULL), 0);
	for (int i = 0; i < 100 && c.inserted == 0; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
		pipeline_read_counts(p, 0, &c);
	}
	assert_int_equal(c.inserted, 1);
	assert_int_equal(finish(p, 5), 0);
	release(p, &k);
}

static void a_broken_sink_is_reported(void **state)
{
	struct keeper k = { .verdict = SEND_BROKEN };
	struct pipeline *p = start(&k, 10, 1 << 20);
	struct why why = { { 0 } };
	int err = 0;

	(void)state;
	add_numbers(p, 0, 0, 10);
	for (int i = 0; i < 100 && !err; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
		err = pipeline_tick(p, &why);
	}
	assert_int_equal(err, -EPIPE);
	assert_string_equal(why.text, "told to");
	assert_int_equal(finish(p, 5), 10);
	release(p, &k);
}

/* Replaces stdout by a pipe of minimal size; `ret_saved`: the original stdout. */
static int redirect_stdout(int *ret_saved)
{
	int fds[2];

	fflush(stdout);
	*ret_saved = dup(STDOUT_FILENO);
	assert_int_equal(pipe(fds), 0);
	assert_true(fcntl(fds[1], F_SETPIPE_SZ, 4096) > 0);
	assert_int_equal(dup2(fds[1], STDOUT_FILENO), STDOUT_FILENO);
	close(fds[1]);
	return fds[0];
}

/* Reads the remaining bytes of the pipe and closes it. */
static void drain(int fd, struct buffer *ret)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		buffer_append(ret, bytes, (size_t)n);
	close(fd);
}

static void assert_lines_in_order(const struct buffer *got, uint64_t n)
{
	const char *at = got->data;
	char line[64];

	for (uint64_t i = 0; i < n; i++) {
		size_t len = (size_t)snprintf(line, sizeof(line), "{\"table\":\"a\",\"n\":%llu}\n",
					      (unsigned long long)i);

		if ((size_t)(at - got->data) + len > got->len || memcmp(at, line, len))
			fail_msg("line %llu is missing, torn or out of order",
				 (unsigned long long)i);
		at += len;
	}
	assert_int_equal(at - got->data, got->len);
}

/* Rows that fit the pipe are delivered exactly; the rest is reported; no wait for the reader. */
static void stdout_that_is_not_read(void **state)
{
	const struct pipeline_limits limits = { .batch_rows = 500,
						.batch_bytes = 1 << 20,
						.batch_age_ns = NSEC_PER_SEC,
						.memory_bytes = 1 << 20 };
	struct buffer got = { 0 };
	struct pipeline_counts c;
	struct pipeline *p;
	struct why why;
	uint64_t lost;
	int saved, fd = redirect_stdout(&saved);

	(void)state;
	alarm(60); /* limits a hanging test */
	assert_int_equal(pipeline_new(tables, 2, &limits, sink_stdout_new(), &p, &why), 0);
	add_numbers(p, 0, 0, 5003);
	lost = finish(p, 1);
	pipeline_read_counts(p, 0, &c);
	pipeline_free(p);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	alarm(0);
	drain(fd, &got);
	assert_true(lost > 4000 && lost < 5003);
	assert_lines_in_order(&got, 5003 - lost);
	assert_int_equal(c.inserted, 5003 - lost);
	assert_counts_add_up(&c);
	buffer_free(&got);
}

/* The reader closes the pipe: unread rows are counted as not delivered. */
static void stdout_that_is_closed(void **state)
{
	const struct pipeline_limits limits = { .batch_rows = 500,
						.batch_bytes = 1 << 20,
						.batch_age_ns = NSEC_PER_SEC,
						.memory_bytes = 1 << 20 };
	struct pipeline_counts c = { 0 };
	struct pipeline *p;
	struct why why;
	int saved, fd = redirect_stdout(&saved);

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipeline_new(tables, 2, &limits, sink_stdout_new(), &p, &why), 0);
	add_numbers(p, 0, 0, 5003);
	nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000000 }, NULL);
	close(fd);
	assert_in_range(finish(p, 5), 4000, 5003);
	pipeline_read_counts(p, 0, &c);
	pipeline_free(p);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	assert_true(c.dropped_refused > 4000);
	assert_counts_add_up(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_arrive_once_and_in_order),
		cmocka_unit_test(retries_keep_the_order),
		cmocka_unit_test(a_failing_table_holds_no_other_up),
		cmocka_unit_test(refused_rows_are_counted),
		cmocka_unit_test(memory_is_bounded_and_the_oldest_goes),
		cmocka_unit_test(age_closes_a_batch),
		cmocka_unit_test(a_broken_sink_is_reported),
		cmocka_unit_test(stdout_that_is_not_read),
		cmocka_unit_test(stdout_that_is_closed),
	};

	log_set_level(LOG_LEVEL_NONE);
	return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
