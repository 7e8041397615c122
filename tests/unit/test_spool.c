// SPDX-License-Identifier: Apache-2.0
/*
 * Files of the spool: torn or corrupt files are never accepted, complete batches are restored
 * exactly, a batch and its halves never count twice.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "pipeline/pipeline.h"
#include "base/clock.h"
#include "spool_directory.h"

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

static void pieces_are_one_text(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 49, 50, 51, 100, 5000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct batch *b = sealed_batch(1, 0, sizes[i]);
		struct buffer text = { 0 };
		uint64_t n = 0;

		assert_int_equal(batch_rows_text(b, 1 << 20, &text), 0);
		for (size_t at = 0; at < text.len; n++) {
			const char *line = text.data + at;

			assert_int_equal(strtoull(line + strlen("{\"n\":"), NULL, 10), n);
			at += (size_t)((const char *)memchr(line, '\n', text.len - at) + 1 - line);
		}
		assert_int_equal(n, sizes[i]);
		buffer_free(&text);
		batch_free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_truncation_and_every_flipped_byte_is_seen),
		cmocka_unit_test(names_come_back),
		cmocka_unit_test(pieces_are_one_text),
		cmocka_unit_test(halves_hold_all_rows_and_have_tokens_of_their_own),
		cmocka_unit_test(cutting_ends_with_one_row),
		ON_DISK(a_half_beside_its_whole_is_no_batch),
		ON_DISK(a_whole_that_stays_is_not_replaced),
		ON_DISK(a_file_is_as_old_as_it_is),
	};

	log_set_level(LOG_LEVEL_NONE);
	clock_calibrate();
	return cmocka_run_group_tests_name("spool", tests, NULL, NULL);
}
