// SPDX-License-Identifier: Apache-2.0
/*
 * The spool: torn or corrupt files are never accepted, complete batches are restored exactly and in
 * order, limits hold, losses of a killed run are counted exactly.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "pipeline/pipeline.h"
#include "base/clock.h"

struct number_row {
	uint64_t n;
};
static const struct column columns[] = { COLUMN(COLUMN_U64, struct number_row, n, "n", "UInt64") };
static const struct table table_a = { "a", { columns }, { 1 } };
static const struct table table_report = { "ebpf_agent", { columns }, { 1 } };
static const struct table *const tables[] = { &table_a, &table_report };

static char directory[64];

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory, "/tmp/underspan-spool-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

static struct batch *sealed_batch(uint64_t order, uint64_t from, uint64_t to)
{
	struct batch *b = batch_new();
	char line[64];

	b->order = order;
	for (uint64_t n = from; n < to; n++) {
		int len = snprintf(line, sizeof(line), "{\"n\":%llu,\"start_time\":%llu}\n",
				   (unsigned long long)n,
				   (unsigned long long)(n % 7 * 86400000000ULL));

		assert_int_equal(buffer_append(&b->body, line, (size_t)len), 0);
		b->rows++;
	}
	assert_int_equal(batch_seal(b, "host-boot-run", "a", "INSERT INTO a"), 0);
	return b;
}

static void file_of(const struct batch *b, struct buffer *ret)
{
	assert_int_equal(spool_file_header(b, "a", ret), 0);
	assert_int_equal(buffer_append(ret, b->body.data, b->body.len), 0);
}

static void every_truncation_and_every_flipped_byte_is_seen(void **state)
{
	struct batch *b = sealed_batch(7, 0, 100), *back = batch_new();
	struct spool_name name = { .order = 7, .rows = 100, .table = "a" };
	struct buffer file = { 0 };
	struct why why;
	size_t len;

	(void)state;
	file_of(b, &file);
	len = file.len;
	assert_int_equal(spool_file_decode(&file, &name, back, &why), 0);
	assert_string_equal(back->token, b->token);
	assert_string_equal(back->insert, b->insert);
	assert_int_equal(back->body.len, b->body.len);
	assert_memory_equal(back->body.data, b->body.data, b->body.len);
	for (file.len = 0; file.len < len; file.len++) {
		/* exact-size copy, for the sanitizer */
		struct buffer cut = { 0 };

		assert_int_equal(buffer_append(&cut, file.data, file.len), 0);
		if (spool_file_decode(&cut, &name, back, &why) != -EBADMSG)
			fail_msg("taken with %zu of %zu bytes", file.len, len);
		buffer_free(&cut);
	}
	for (size_t i = 0; i < len; i++) {
		file.data[i] ^= 0x20;
		if (spool_file_decode(&file, &name, back, &why) != -EBADMSG)
			fail_msg("taken with byte %zu changed", i);
		file.data[i] ^= 0x20;
	}
	assert_int_equal(buffer_append(&file, "", 1), 0);
	assert_int_equal(spool_file_decode(&file, &name, back, &why), -EBADMSG);
	file.len = len;
	name.rows = 99;
	assert_int_equal(spool_file_decode(&file, &name, back, &why), -EBADMSG);
	buffer_free(&file);
	batch_free(b);
	batch_free(back);
}

static void names_come_back(void **state)
{
	static const char *const bad[] = { "",
					   "ledger",
					   "corrupt",
					   "0000000000000001.0.a",
					   "0000000000000001.5",
					   "0000000000000001.5.",
					   "0000000000000001-2.5.a",
					   "0000000000000001-.5.a",
					   "000000000000001.5.a",
					   "00000000000000001.5.a",
					   "0000000000000001.5.a/b",
					   "0000000000000001.5.a b",
					   "0000000000000001.99999999999999999999.a",
					   "0000000000000001.-5.a",
					   "0000000000000001.5.a." };
	struct batch b = { .order = 0xabc, .part = "01", .rows = 5 };
	struct spool_name name;
	char text[SPOOL_NAME_MAX];

	(void)state;
	spool_name_print(&b, "ebpf_off_cpu", text);
	assert_string_equal(text, "0000000000000abc-01.5.ebpf_off_cpu");
	assert_true(spool_name_parse(text, &name));
	assert_int_equal(name.order, 0xabc);
	assert_int_equal(name.rows, 5);
	assert_string_equal(name.part, "01");
	assert_string_equal(name.table, "ebpf_off_cpu");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (spool_name_parse(bad[i], &name))
			fail_msg("'%s' was taken", bad[i]);
	}
}

static uint64_t count_lines(const struct batch *b, struct buffer *ret_text)
{
	uint64_t n = 0;

	assert_int_equal(batch_rows_text(b, 1 << 20, ret_text), 0);
	for (size_t i = 0; i < ret_text->len; i++)
		n += ret_text->data[i] == '\n';
	return n;
}

static void halves_hold_all_rows_and_have_tokens_of_their_own(void **state)
{
	(void)state;
	for (int by_days = 0; by_days < 2; by_days++) {
		struct batch *b = sealed_batch(9, 0, 101), *halves[2], *again[2];
		struct buffer text[2] = { { 0 } };

		assert_int_equal(batch_split(b, "a", by_days, halves), 0);
		assert_int_equal(batch_split(b, "a", by_days, again), 0);
		assert_int_equal(halves[0]->rows + halves[1]->rows, 101);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(count_lines(halves[i], &text[i]), halves[i]->rows);
			assert_string_equal(halves[i]->token, again[i]->token);
			assert_string_not_equal(halves[i]->token, b->token);
		}
		assert_string_not_equal(halves[0]->token, halves[1]->token);
		/* days 0, 1, 2 and 3 to 6 */
		if (by_days) {
			assert_null(memmem(text[0].data, text[0].len, ":259200000000}", 14));
			assert_null(memmem(text[1].data, text[1].len, ":172800000000}", 14));
		}
		for (int i = 0; i < 2; i++) {
			buffer_free(&text[i]);
			batch_free(halves[i]);
			batch_free(again[i]);
		}
		batch_free(b);
	}
}

static void cutting_ends_with_one_row(void **state)
{
	struct batch *b = sealed_batch(9, 0, 100), *halves[2];
	int cuts = 0;

	(void)state;
	while (b->rows > 1) {
		assert_int_equal(batch_split(b, "a", false, halves), 0);
		batch_free(b);
		batch_free(halves[0]);
		b = halves[1];
		cuts++;
	}
	assert_int_equal(cuts, 7);
	assert_in_range(strlen(b->token), 1, 80);
	assert_int_equal(batch_split(b, "a", false, halves), -ENODATA);
	assert_int_equal(batch_split(b, "a", true, halves), -ENODATA);
	batch_free(b);
}

static struct spool_options options(void)
{
	return (struct spool_options){ .directory = directory,
				       .max_bytes = 1 << 20,
				       .max_age_ns = 3600 * NSEC_PER_SEC,
				       .sync_after_ns = NSEC_PER_SEC };
}

/* If the whole cannot be removed, its halves would double the rows. */
static void a_whole_that_stays_is_not_replaced(void **state)
{
	struct spool_options o = options();
	struct batch *whole = sealed_batch(1, 0, 10);
	char path[128];
	struct spool *s;
	struct why why;

	(void)state;
	assert_int_equal(spool_open(&o, &s, &why), 0);
	assert_int_equal(spool_put(s, whole, "a", false, &why), 0);
	assert_int_equal(spool_replace(s, whole, "a", &why), 0);
	assert_int_equal(spool_replace(s, whole, "a", &why), 0); /* already removed: success */
	snprintf(path, sizeof(path), "%s/%016x.10.a", directory, 1);
	assert_int_equal(mkdir(path, 0700), 0); /* a directory cannot be unlinked, even by root */
	assert_int_equal(spool_replace(s, whole, "a", &why), -EISDIR);
	assert_non_null(strstr(why.text, "cannot replace"));
	spool_close(s);
	batch_free(whole);
}

struct found {
	size_t n;
	struct spool_name names[8];
};

static int remember(const struct spool_name *name, uint64_t disk, uint64_t age, void *context)
{
	struct found *f = context;

	assert_int_equal(disk % 4096, 0);
	assert_in_range(age, 0, 60 * NSEC_PER_SEC);
	f->names[f->n++] = *name;
	return 0;
}

static int keep_age(const struct spool_name *name, uint64_t disk, uint64_t age, void *context)
{
	(void)name, (void)disk;
	*(uint64_t *)context = age;
	return 0;
}

static void set_time(const char *name, int64_t seconds)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	assert_int_equal(
		utimensat(AT_FDCWD, path,
			  (struct timespec[]){ { .tv_nsec = UTIME_OMIT }, { .tv_sec = seconds } },
			  0),
		0);
}

static void write_clock(const char *boot_id, int64_t base)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/clock", directory);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%s %lld\n", boot_id, (long long)base);
	fclose(f);
}

static uint64_t scanned_age_s(struct spool_options *o)
{
	uint64_t age = UINT64_MAX;
	struct spool *s;
	struct why why;

	assert_int_equal(spool_open(o, &s, &why), 0);
	assert_int_equal(spool_scan(s, keep_age, &age, &why), 0);
	spool_close(s);
	return age / NSEC_PER_SEC;
}

/* Clocks: started in 1970, set right since, running. */
static void a_file_is_as_old_as_it_is(void **state)
{
	static const char file[] = "0000000000000001.10.a", other_boot[] = "another-boot";
	struct spool_options o = options();
	struct batch *b = sealed_batch(1, 0, 10);
	struct timespec up;
	struct spool *s;
	struct why why;

	(void)state;
	clock_gettime(CLOCK_BOOTTIME, &up);
	assert_int_equal(spool_open(&o, &s, &why), 0);
	assert_int_equal(spool_put(s, b, "a", false, &why), 0);
	spool_close(s);
	batch_free(b);
	/* files of an older version: wall clock if plausible */
	set_time(file, 7);
	assert_in_range(scanned_age_s(&o), 0, 5);
	assert_in_range(scanned_age_s(&o), 0, 5); /* dated by this clock now */
	/* previous boot with a clock in 1970, last seen after 100 s */
	set_time(file, 50);
	write_clock(other_boot, 0);
	set_time("clock", 150);
	assert_in_range(scanned_age_s(&o), 100 + (uint64_t)up.tv_sec, 105 + (uint64_t)up.tv_sec);
	/* again, now dated by this boot's clock */
	assert_in_range(scanned_age_s(&o), 100 + (uint64_t)up.tv_sec, 106 + (uint64_t)up.tv_sec);
	/* a clock years ahead */
	set_time(file, 4000000000);
	write_clock(other_boot, 0);
	set_time("clock", 4000000020);
	assert_in_range(scanned_age_s(&o), 20 + (uint64_t)up.tv_sec, 26 + (uint64_t)up.tv_sec);
	/* a foreign file with that name */
	write_clock("x", 0);
	set_time("clock", 4000000020);
	set_time(file, 0);
	assert_in_range(scanned_age_s(&o), 0, 5);
}

static void a_half_beside_its_whole_is_no_batch(void **state)
{
	struct spool_options o = options();
	struct batch *whole[3], *halves[2], *quarters[2];
	struct found found = { 0 };
	struct spool *s, *second;
	struct why why;

	(void)state;
	assert_int_equal(spool_open(&o, &s, &why), 0);
	assert_int_equal(spool_open(&o, &second, &why), -EBUSY);
	assert_non_null(strstr(why.text, "in use"));
	for (uint64_t i = 0; i < 3; i++) {
		whole[i] = sealed_batch(i + 1, 0, 10);
		assert_int_equal(spool_put(s, whole[i], "a", i == 1, &why), 0);
	}
	assert_int_equal(batch_split(whole[1], "a", false, halves), 0);
	assert_int_equal(spool_put(s, halves[0], "a", true, &why), 0);
	assert_int_equal(spool_put(s, halves[1], "a", true, &why), 0);
	assert_int_equal(spool_scan(s, remember, &found, &why), 0);
	assert_int_equal(found.n, 3); /* killed before removing the whole */
	assert_int_equal(spool_put(s, halves[0], "a", true, &why), 0);
	assert_int_equal(spool_put(s, halves[1], "a", true, &why), 0);
	assert_int_equal(spool_replace(s, whole[1], "a", &why), 0);
	assert_int_equal(batch_split(halves[0], "a", false, quarters), 0);
	assert_int_equal(spool_put(s, quarters[1], "a", true, &why), 0);
	found.n = 0;
	assert_int_equal(spool_scan(s, remember, &found, &why), 0);
	assert_int_equal(found.n, 4);
	assert_string_equal(found.names[1].part, "0");
	assert_string_equal(found.names[2].part, "1");
	spool_close(s);
	for (int i = 0; i < 3; i++)
		batch_free(whole[i]);
	for (int i = 0; i < 2; i++) {
		batch_free(halves[i]);
		batch_free(quarters[i]);
	}
}

/* ---- the pipeline on it ---- */

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
#define ON_DISK(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_truncation_and_every_flipped_byte_is_seen),
		cmocka_unit_test(names_come_back),
		cmocka_unit_test(halves_hold_all_rows_and_have_tokens_of_their_own),
		cmocka_unit_test(cutting_ends_with_one_row),
		ON_DISK(a_half_beside_its_whole_is_no_batch),
		ON_DISK(a_whole_that_stays_is_not_replaced),
		ON_DISK(what_is_not_delivered_comes_with_the_next_run),
		ON_DISK(another_runs_table_is_delivered_too),
		ON_DISK(the_limit_drops_the_oldest_and_counts),
		ON_DISK(age_drops_and_counts),
		ON_DISK(a_bad_row_is_found_and_the_others_go_on),
		ON_DISK(a_table_that_refuses_all_keeps_all_and_costs_few_tries),
		ON_DISK(a_file_is_as_old_as_it_is),
		ON_DISK(a_batch_larger_than_the_spool_empties_nothing),
		ON_DISK(corrupt_files_are_set_aside_and_counted),
		ON_DISK(a_killed_run_is_counted_to_the_row),
		ON_DISK(losses_are_told_until_they_are_safe),
	};

	log_set_level(LOG_LEVEL_NONE);
	clock_calibrate();
	return cmocka_run_group_tests_name("spool", tests, NULL, NULL);
}
