// SPDX-License-Identifier: Apache-2.0
/* Reading a ring buffer, in memory laid out as by the kernel. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trackers/ring.h"

enum { SIZE = 4096 };

struct fake {
	struct ring ring;
	unsigned long consumed;
	unsigned long *produced;
	char *records;
	char got[4 * SIZE];
	size_t got_len, calls;
};

static void make(struct fake *f, unsigned long at)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = calloc(1, page + SIZE);

	assert_non_null(pages);
	*f = (struct fake){ .consumed = at };
	f->produced = (unsigned long *)pages;
	*f->produced = at;
	f->records = pages + page;
	f->ring = (struct ring){ .consumed = &f->consumed, .pages = pages, .size = SIZE };
}

/* As the kernel, which has the records mapped twice in a row. */
static void write_record(struct fake *f, const char *text, size_t len, uint32_t marks)
{
	uint32_t header[2] = { (uint32_t)len | marks };

	for (size_t i = 0; i < sizeof(header); i++)
		f->records[(*f->produced + i) % SIZE] = ((const char *)header)[i];
	for (size_t i = 0; i < len; i++)
		f->records[(*f->produced + 8 + i) % SIZE] = text[i];
	*f->produced += (8 + len + 7) & ~7UL;
}

static void on_record(void *context, const void *record, size_t size)
{
	struct fake *f = context;

	memcpy(f->got + f->got_len, record, size);
	f->got_len += size;
	f->calls++;
}

/* From each place of the ring on, so that records and headers lie across and at its end. */
static void test_records_in_order_around_the_end(void **state)
{
	struct fake f;
	char text[] = "a record of some length, or of less";
	char wanted[sizeof(f.got)];

	(void)state;
	for (unsigned long at = 0; at < 2 * SIZE; at += 8) {
		size_t len = 0;

		make(&f, at);
		for (size_t n = 1; n < sizeof(text); n += 3) {
			write_record(&f, text + n % 5, sizeof(text) - n, 0);
			memcpy(wanted + len, text + n % 5, sizeof(text) - n);
			len += sizeof(text) - n;
		}
		assert_int_equal(ring_read(&f.ring, 5, on_record, &f), 5);
		assert_int_equal(f.calls, 5);
		assert_int_equal(ring_read(&f.ring, 100, on_record, &f), 12 - 5);
		assert_int_equal(f.got_len, len);
		assert_memory_equal(f.got, wanted, len);
		assert_int_equal(f.consumed, *f.produced);
		assert_int_equal(ring_read(&f.ring, 100, on_record, &f), 0);
		free(f.produced);
	}
}

static void test_a_discarded_record_is_passed_over(void **state)
{
	struct fake f;

	(void)state;
	make(&f, 0);
	write_record(&f, "abc", 3, BPF_RINGBUF_DISCARD_BIT);
	write_record(&f, "def", 3, 0);
	assert_int_equal(ring_read(&f.ring, 100, on_record, &f), 2);
	assert_int_equal(f.calls, 1);
	assert_memory_equal(f.got, "def", 3);
	free(f.produced);
}

static void test_a_record_being_written_is_waited_for(void **state)
{
	struct fake f;

	(void)state;
	make(&f, 16);
	write_record(&f, "abc", 3, 0);
	write_record(&f, "def", 3, BPF_RINGBUF_BUSY_BIT);
	write_record(&f, "ghi", 3, 0);
	assert_int_equal(ring_read(&f.ring, 100, on_record, &f), 1);
	assert_int_equal(ring_read(&f.ring, 100, on_record, &f), 0);
	memcpy(f.records + 32, &(uint32_t){ 3 }, 4);
	assert_int_equal(ring_read(&f.ring, 100, on_record, &f), 2);
	assert_memory_equal(f.got, "abcdefghi", 9);
	free(f.produced);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_in_order_around_the_end),
		cmocka_unit_test(test_a_discarded_record_is_passed_over),
		cmocka_unit_test(test_a_record_being_written_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
