// SPDX-License-Identifier: Apache-2.0
/*
 * The pipeline with a spool: a later run delivers the rows of an earlier run in order, limits hold,
 * losses of a killed run are counted exactly.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "pipeline/pipeline.h"
#include "base/clock.h"
#include "spool_directory.h"

struct number_row {
	uint64_t n;
};
static const struct column columns[] = { COLUMN(COLUMN_U64, struct number_row, n, "n", "UInt64") };
static const struct table table_a = { "a", { columns }, { 1 } };
static const struct table table_report = { "ebpf_agent", { columns }, { 1 } };
static const struct table *const tables[] = { &table_a, &table_report };

struct keeper {
	struct sink sink;
	struct buffer got;
	char last_token[DEDUP_TOKEN_MAX];
	enum send_result verdict;
	uint64_t bad_row; /* SEND_REFUSED for batches with this row */
	size_t sends;
};

static int statement(const struct table *table, struct buffer *sql)
{
	(void)table;
	return buffer_append(sql, "INSERT", 7);
}

static enum send_result keep(struct sink *sink, const struct batch *batch, struct send_reply *reply)
{
	struct keeper *k = (struct keeper *)sink;
	struct buffer text = { 0 };
	enum send_result result = k->verdict;
	char bad[32];

	k->sends++;
	assert_int_equal(batch_rows_text(batch, 1 << 24, &text), 0);
	snprintf(bad, sizeof(bad), "{\"n\":%llu}\n", (unsigned long long)k->bad_row);
	if (k->bad_row && memmem(text.data, text.len, bad, strlen(bad)))
		result = SEND_REFUSED;
	if (result == SEND_OK)
		buffer_append(&k->got, text.data, text.len);
	else
		why_fail(&reply->why, EIO, "told to");
	snprintf(k->last_token, sizeof(k->last_token), "%s", batch->token);
	buffer_free(&text);
	return result;
}

static void no_free(struct sink *sink)
{
	(void)sink;
}

static struct pipeline *start_with(size_t n_tables, struct keeper *k, uint64_t batch_rows,
				   const struct spool_options *o)
{
	const struct pipeline_limits limits = { .batch_rows = batch_rows,
						.batch_bytes = 1 << 20,
						.batch_age_ns = 3600 * NSEC_PER_SEC,
						.memory_bytes = 1 << 20,
						.spool = *o };
	struct pipeline *p;
	struct why why = { { 0 } };

	k->sink = (struct sink){
		.name = "keeper", .statement = statement, .send = keep, .free = no_free
	};
	if (pipeline_new(tables, n_tables, &limits, &k->sink, &p, &why))
		fail_msg("%s", why.text);
	return p;
}

static struct pipeline *start(struct keeper *k, uint64_t batch_rows, const struct spool_options *o)
{
	return start_with(1, k, batch_rows, o);
}

static void add_numbers(struct pipeline *p, uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n < to; n++)
		pipeline_add(p, 0, &(struct number_row){ n });
}

static void finish(struct pipeline *p, int expected)
{
	struct why why;

	assert_int_equal(pipeline_finish(p, clock_monotonic_ns() + 5 * NSEC_PER_SEC, &why),
			 expected);
}

static void assert_counts_add_up(const struct pipeline_counts *c)
{
	assert_int_equal(c->rows + c->recovered, c->inserted + c->dropped_memory +
							 c->dropped_spool + c->dropped_corrupt +
							 c->dropped_refused + c->queued);
}

static void assert_got(const struct keeper *k, uint64_t from, uint64_t to)
{
	const char *at = k->got.data;
	char line[64];

	for (uint64_t n = from; n < to; n++) {
		size_t len = (size_t)snprintf(line, sizeof(line), "{\"n\":%llu}\n",
					      (unsigned long long)n);

		if (n == k->bad_row && n)
			continue;
		if ((size_t)(at - k->got.data) + len > k->got.len || memcmp(at, line, len))
			fail_msg("row %llu is missing or out of order", (unsigned long long)n);
		at += len;
	}
	assert_int_equal(at - k->got.data, k->got.len);
}

static void what_is_not_delivered_comes_with_the_next_run(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c;
	struct pipeline *p = start(&k, 100, &o);
	uint64_t begin = clock_monotonic_ns();

	(void)state;
	add_numbers(p, 0, 1009);
	finish(p, 0); /* no loss, and no wait for an unreachable server */
	assert_in_range(clock_monotonic_ns() - begin, 0, 4 * NSEC_PER_SEC);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.spooled, 1009);
	assert_int_equal(c.queued, 1009);
	pipeline_free(p);
	k.verdict = SEND_OK;
	p = start(&k, 100, &o);
	add_numbers(p, 1009, 2003);
	finish(p, 0);
	assert_got(&k, 0, 2003);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.recovered, 1009);
	assert_int_equal(c.inserted, 2003);
	assert_int_equal(c.spooled, 0);
	assert_int_equal(c.lost_crash, 0);
	assert_counts_add_up(&c);
	pipeline_free(p);
	buffer_free(&k.got);
}

/* Bytes read by this process so far, from files and anything else. */
static uint64_t bytes_read(void)
{
	FILE *file = fopen("/proc/self/io", "re");
	unsigned long long n = 0;

	if (!file || fscanf(file, "rchar: %llu", &n) != 1)
		fail_msg("/proc/self/io is unreadable");
	fclose(file);
	return n;
}

static void what_is_sent_at_once_is_not_read_from_the_spool(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_OK };
	struct pipeline_counts c;
	struct pipeline *p = start(&k, 20000, &o);
	uint64_t before = bytes_read();

	(void)state;
	add_numbers(p, 0, 20000);
	finish(p, 0);
	before = bytes_read() - before;
	pipeline_read_counts(p, 0, &c);
	assert_got(&k, 0, 20000);
	assert_in_range(before, 0, c.bytes / 4);
	assert_counts_add_up(&c);
	pipeline_free(p);
	buffer_free(&k.got);
}

static void another_runs_table_is_delivered_too(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_OK };
	struct batch *b = sealed_batch(77, 0, 10);
	struct pipeline_counts c;
	struct pipeline *p;
	struct spool *s;
	struct why why;
	char path[128];

	(void)state;
	assert_int_equal(spool_open(&o, &s, &why), 0);
	assert_int_equal(spool_put(s, b, "table_of_a_newer_version", true, &why), 0);
	spool_close(s);
	snprintf(path, sizeof(path), "%s/%016x.10.table_of_a_newer_version", directory, 77);
	assert_int_equal(access(path, F_OK), 0);
	p = start(&k, 100, &o);
	add_numbers(p, 0, 5);
	finish(p, 0);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(k.sends, 2);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.inserted, 5); /* the other rows belong to another table */
	assert_string_not_equal(k.last_token, b->token);
	pipeline_free(p);
	batch_free(b);
	buffer_free(&k.got);
}

static void the_limit_drops_the_oldest_and_counts(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c;
	struct pipeline *p;

	(void)state;
	o.max_bytes = 10 * 4096;
	p = start(&k, 100, &o);
	add_numbers(p, 0, 5000);
	finish(p, -EIO);
	pipeline_read_counts(p, 0, &c);
	assert_counts_add_up(&c);
	assert_int_equal(c.dropped_memory, 0);
	assert_in_range(c.spooled, 800, 1000);
	pipeline_free(p);
	k.verdict = SEND_OK;
	p = start(&k, 100, &o);
	finish(p, 0);
	assert_got(&k, 5000 - c.spooled, 5000);
	pipeline_free(p);
	buffer_free(&k.got);
}

static void age_drops_and_counts(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c = { 0 };
	struct pipeline *p;

	(void)state;
	o.max_age_ns = NSEC_PER_SEC;
	p = start(&k, 100, &o);
	add_numbers(p, 0, 500);
	for (int i = 0; i < 200 && c.dropped_spool < 500; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000000 }, NULL);
		pipeline_read_counts(p, 0, &c);
	}
	assert_int_equal(c.dropped_spool, 500);
	assert_counts_add_up(&c);
	finish(p, -EIO);
	pipeline_free(p);
}

static void a_bad_row_is_found_and_the_others_go_on(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_OK, .bad_row = 617 };
	struct pipeline_counts c;
	struct pipeline *p = start(&k, 1000, &o);
	char path[128], text[128] = "";
	int fd;

	(void)state;
	add_numbers(p, 0, 2000);
	finish(p, -EIO);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.dropped_refused, 1);
	assert_int_equal(c.inserted, 1999);
	assert_counts_add_up(&c);
	assert_got(&k, 0, 2000);
	assert_in_range(k.sends, 3, 25);
	snprintf(path, sizeof(path), "%s/refused.ndjson", directory);
	fd = open(path, O_RDONLY);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_string_equal(text, "# a: told to\n{\"n\":617}\n");
	pipeline_free(p);
	buffer_free(&k.got);
}

/* A wrong table (column of another type): no row is dropped. */
static void a_table_that_refuses_all_keeps_all_and_costs_few_tries(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_REFUSED };
	struct pipeline_counts c;
	struct pipeline *p = start(&k, 1000, &o);

	(void)state;
	add_numbers(p, 0, 10000);
	finish(p, 0);
	pipeline_read_counts(p, 0, &c);
	assert_counts_add_up(&c);
	assert_int_equal(c.dropped_refused, 0);
	assert_int_equal(c.spooled, 10000);
	assert_in_range(k.sends, 10, 200);
	pipeline_free(p);
	k.verdict = SEND_OK;
	p = start(&k, 1000, &o);
	finish(p, 0);
	assert_got(&k, 0, 10000);
	pipeline_free(p);
	buffer_free(&k.got);
}

/* No batch is dropped, other batches are written. */
static void a_batch_larger_than_the_spool_empties_nothing(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c = { 0 };
	struct pipeline *p;

	(void)state;
	o.max_bytes = 8 * 4096;
	p = start(&k, 100, &o);
	add_numbers(p, 0, 300);
	for (int i = 0; i < 200 && c.spooled < 300; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000000 }, NULL);
		pipeline_read_counts(p, 0, &c);
	}
	assert_int_equal(c.spooled, 300);
	pipeline_change_limits(p, &(struct pipeline_limits){ .batch_rows = 50000,
							     .batch_bytes = 16 << 20,
							     .batch_age_ns = 3600 * NSEC_PER_SEC,
							     .memory_bytes = 64 << 20,
							     .spool = o });
	add_numbers(p, 300, 50300);
	nanosleep(&(struct timespec){ .tv_sec = 2, .tv_nsec = 500 * 1000000 }, NULL);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.dropped_spool, 0);
	assert_int_equal(c.spooled, 300);
	k.verdict = SEND_OK;
	finish(p, 0);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.inserted, 50300);
	assert_counts_add_up(&c);
	pipeline_free(p);
	buffer_free(&k.got);
}

static void corrupt_files_are_set_aside_and_counted(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c;
	struct pipeline *p = start(&k, 100, &o);
	char path[128];
	int fd;

	(void)state;
	add_numbers(p, 0, 300);
	finish(p, 0);
	pipeline_free(p);
	snprintf(path, sizeof(path), "%s/%016x.100.a", directory, 2);
	fd = open(path, O_RDWR);
	assert_int_equal(ftruncate(fd, 150), 0);
	close(fd);
	k.verdict = SEND_OK;
	p = start(&k, 100, &o);
	finish(p, -EIO);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.inserted, 200);
	assert_int_equal(c.dropped_corrupt, 100);
	assert_counts_add_up(&c);
	snprintf(path, sizeof(path), "%s/corrupt/%016x.100.a", directory, 2);
	assert_int_equal(access(path, F_OK), 0);
	pipeline_free(p);
	buffer_free(&k.got);
}

/* Killed with full batches in the spool and rows in memory: the latter are counted exactly. */
static void a_killed_run_is_counted_to_the_row(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c;
	struct pipeline *p;
	pid_t child = fork();
	int status;

	(void)state;
	if (!child) {
		p = start(&k, 100, &o);
		add_numbers(p, 0, 1013);
		for (c.spooled = 0; c.spooled < 1000;)
			pipeline_read_counts(p, 0, &c);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	k.verdict = SEND_OK;
	p = start(&k, 100, &o);
	add_numbers(p, 1013, 1020);
	finish(p, 0);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.recovered, 1000);
	assert_int_equal(c.lost_crash, 13);
	assert_int_equal(c.inserted, 1007);
	assert_counts_add_up(&c);
	pipeline_free(p);
	p = start(&k, 100, &o); /* reported once */
	finish(p, 0);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.lost_crash, 0);
	pipeline_free(p);
	buffer_free(&k.got);
}

/* In a child: adds rows, `spooled` of them reach the spool, then SIGKILL. */
static void killed_run(struct keeper *k, const struct spool_options *o, uint64_t rows,
		       uint64_t spooled)
{
	struct pipeline_counts c = { 0 };
	struct pipeline *p;
	pid_t child = fork();
	int status;

	if (!child) {
		p = start_with(2, k, 100, o);
		add_numbers(p, 0, rows);
		while (c.spooled < spooled)
			pipeline_read_counts(p, 0, &c);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
}

/* Killed again before the first report is safe: the next run reports the losses of both. */
static void losses_are_told_until_they_are_safe(void **state)
{
	struct spool_options o = options();
	struct keeper k = { .verdict = SEND_RETRY };
	struct pipeline_counts c;
	struct pipeline *p;

	(void)state;
	killed_run(&k, &o, 213, 200);
	killed_run(&k, &o, 7, 200);
	k.verdict = SEND_OK;
	p = start_with(2, &k, 100, &o);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.lost_crash, 13 + 7);
	pipeline_add(p, 1, &(struct number_row){ 1 }); /* report row */
	finish(p, 0);
	pipeline_free(p);
	p = start_with(2, &k, 100, &o);
	pipeline_read_counts(p, 0, &c);
	assert_int_equal(c.lost_crash, 0);
	finish(p, 0);
	pipeline_free(p);
	buffer_free(&k.got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(what_is_not_delivered_comes_with_the_next_run),
		ON_DISK(what_is_sent_at_once_is_not_read_from_the_spool),
		ON_DISK(another_runs_table_is_delivered_too),
		ON_DISK(the_limit_drops_the_oldest_and_counts),
		ON_DISK(age_drops_and_counts),
		ON_DISK(a_bad_row_is_found_and_the_others_go_on),
		ON_DISK(a_table_that_refuses_all_keeps_all_and_costs_few_tries),
		ON_DISK(a_batch_larger_than_the_spool_empties_nothing),
		ON_DISK(corrupt_files_are_set_aside_and_counted),
		ON_DISK(a_killed_run_is_counted_to_the_row),
		ON_DISK(losses_are_told_until_they_are_safe),
	};

	log_set_level(LOG_LEVEL_NONE);
	clock_calibrate();
	return cmocka_run_group_tests_name("spool_pipeline", tests, NULL, NULL);
}
