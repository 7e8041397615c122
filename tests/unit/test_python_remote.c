// SPDX-License-Identifier: Apache-2.0
/*
 * Readers of process memory with invalid data: garbage, cycles, huge sizes. Readers must end within
 * the granted number of reads and report an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <string.h>

#include "cpython/offsets.h"
#include "cpython/code.h"
#include "cpython/threads.h"

enum { READS = 3000, MINOR_FIRST = 8, MINOR_LAST = 12 };

/* Offsets of a version; for 3.13 and later from a file. */
static struct python_offsets offsets_of(uint8_t minor)
{
	struct python_image image = { .machine = EM_X86_64, .major = 3, .minor = minor };
	struct python_offsets offsets;

	assert_int_equal(python_offsets_for(&image, -1, &offsets, NULL), 0);
	return offsets;
}

/* ---- memory readable at every address ---- */

struct liar {
	uint64_t seed, (*word)(uint64_t seed, uint64_t address);
	size_t reads, largest;
};

static int lie(void *context, uint64_t address, void *buf, size_t size)
{
	struct liar *liar = context;
	uint8_t *to = buf;

	liar->reads++;
	liar->largest = size > liar->largest ? size : liar->largest;
	for (size_t i = 0; i < size; i++) {
		uint64_t word = liar->word(liar->seed, (address + i) & ~7ULL);

		to[i] = (uint8_t)(word >> (address + i) % 8 * 8);
	}
	return 0;
}

static uint64_t garbage(uint64_t seed, uint64_t address)
{
	uint64_t x = (address + seed) * 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 29;
	/* half of the words are plausible addresses and small numbers */
	return x & 1 ? x : x & 2 ? (x >> 40 & ~7ULL) + 4096 : x >> 58;
}

static uint64_t circle(uint64_t seed, uint64_t address)
{
	(void)address;
	return 0x10000 + seed * 8; /* every word points to another word */
}

static uint64_t beyond(uint64_t seed, uint64_t address)
{
	(void)address;
	return 1ULL << (60 - seed % 40);
}

static void read_all(const struct python_offsets *offsets, struct liar *liar)
{
	struct python_threads threads = { 0 };
	struct python_frame frame = { .code = 0x20000, .ip = 400 };
	struct python_key keys[] = { { .name = "_name" }, { .name = "_native_id" } };
	char name[PYTHON_THREAD_NAME_MAX], text[PYTHON_FRAME_TEXT_MAX];
	struct remote r = { lie, liar, offsets, 0, READS };
	uint64_t value;

	python_threads_find(&r, 0x30000, &threads);
	threads.active = 0x40000;
	threads.name.name = "_name";
	threads.native_id.name = "_native_id";
	threads.str_type = 0;
	python_thread_name(&r, &threads, 0x12340, 1, false, name);
	python_thread_name(&r, &threads, 0, 1, true, name);
	python_attributes(&r, 0x50000, keys, 2);
	python_dict_get_int(&r, 0x60000, 77, &value);
	python_frame_text(&r, &frame, text);
	python_text(&r, 0x70000, text, sizeof(text), NULL);
	assert_true(liar->reads <= READS);
	assert_true(liar->largest <= 1 << 20);
}

static void lies_end(void **state)
{
	static uint64_t (*const words[])(uint64_t, uint64_t) = { garbage, circle, beyond };

	(void)state;
	for (uint8_t minor = MINOR_FIRST; minor <= MINOR_LAST; minor++) {
		struct python_offsets offsets = offsets_of(minor);

		for (size_t i = 0; i < 3 * 40; i++) {
			struct liar liar = { .seed = i / 3, .word = words[i % 3] };

			read_all(&offsets, &liar);
		}
	}
}

/* ---- valid memory with a single error ---- */

enum { BASE = 0x100000, SIZE = 1 << 16 };

static uint8_t memory[SIZE];

static int read_memory(void *context, uint64_t address, void *buf, size_t size)
{
	(void)context;
	if (address < BASE || address + size > BASE + SIZE)
		return -EFAULT;
	memcpy(buf, memory + (address - BASE), size);
	return 0;
}

static void put(uint64_t address, uint64_t value, size_t size)
{
	memcpy(memory + (address - BASE), &value, size);
}

static void put_str(const struct python_offsets *o, uint64_t at, const char *text, uint64_t length)
{
	enum { KIND_1 = 1 << 2, COMPACT = 1 << 5, ASCII = 1 << 6 };

	put(at + 8, BASE + 64, 8);
	put(at + o->unicode_length, length, 8);
	put(at + o->unicode_state, KIND_1 | COMPACT | ASCII, 4);
	memcpy(memory + (at - BASE) + o->unicode_ascii_data, text, strlen(text));
}

enum { STR = BASE + 0x100, DICT = BASE + 0x1000, KEYS = BASE + 0x2000, VALUE = BASE + 0x3000 };

/* A dict of 3.12 with a single key, the string at STR. */
static void put_dict(const struct python_offsets *o)
{
	enum { ENTRIES = KEYS + 32 + 8 };

	memset(memory, 0, sizeof(memory));
	put_str(o, STR, "_active", 7);
	put(DICT + 16, 1, 8);
	put(DICT + 32, KEYS, 8);
	put(KEYS + 8, 0x00010303, 4); /* 8 indices of one byte; string keys */
	put(KEYS + 24, 1, 8);
	put(ENTRIES, STR, 8);
	put(ENTRIES + 8, VALUE, 8);
}

static int get(struct remote *r, struct python_key *key)
{
	*key = (struct python_key){ .name = "_active" };
	r->reads_left = READS;
	return python_dict_get(r, DICT, key, 1);
}

static void a_dict_and_its_lies(void **state)
{
	struct python_offsets o = offsets_of(12);
	struct remote r = { read_memory, NULL, &o, 0, READS };
	struct python_key key;

	(void)state;
	put_dict(&o);
	assert_int_equal(get(&r, &key), 0);
	assert_int_equal(key.value, VALUE);
	assert_int_equal(key.object, STR);

	put(KEYS + 24, 1ULL << 60, 8); /* entries */
	assert_int_equal(get(&r, &key), -EINVAL);
	put(KEYS + 24, 1ULL << 18, 8); /* the maximum number of entries, but unmapped */
	put_str(&o, STR, "_absent", 7);
	assert_int_equal(get(&r, &key), -EFAULT);
	put_str(&o, STR, "_active", 7);
	put(KEYS + 24, 1, 8);
	put(KEYS + 9, 63, 1); /* room for 2 ** 63 indices */
	assert_int_equal(get(&r, &key), -EINVAL);
	put(KEYS + 9, 3, 1);
	put(DICT + 32, KEYS + 4, 8); /* not aligned */
	assert_int_equal(get(&r, &key), -EINVAL);
	put(DICT + 32, DICT, 8); /* the dict as its own keys */
	get(&r, &key);
	assert_int_equal(key.value, 0);
	put(DICT + 32, UINT64_MAX - 7, 8);
	assert_int_equal(get(&r, &key), -EFAULT);
}

static void a_text_and_its_lies(void **state)
{
	struct python_offsets o = offsets_of(12);
	struct remote r = { read_memory, NULL, &o, 0, READS };
	char text[16];

	(void)state;
	memset(memory, 'x', sizeof(memory));
	put_str(&o, STR, "worker", 6);
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), 0);
	assert_string_equal(text, "worker");
	put_str(&o, STR, "worker", 1ULL << 30);
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), 0);
	assert_string_equal(text, "workerxxxxxxxxx");
	put_str(&o, STR, "worker", 1ULL << 60);
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), -EINVAL);
	put_str(&o, STR, "worker", 6);
	put(STR + o.unicode_state, 5 << 2 | 1 << 5, 4); /* characters of 5 bytes */
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), -EINVAL);
	put_str(&o, STR, "worker", 6);
	r.str_type = BASE + 72; /* an object of another type */
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), -EINVAL);
	r.str_type = BASE + 64;
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), 0);
	r.reads_left = 0;
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), -EDQUOT);
}

static void characters(void **state)
{
	struct python_offsets o = offsets_of(12);
	struct remote r = { read_memory, NULL, &o, 0, READS };
	static const uint32_t wide[] = { 'a', 0xe9, 0x540d, 0x1f40d, 0xd800, 0, 0x110000, 'z' };
	char text[64];
	bool cut;

	(void)state;
	memset(memory, 0, sizeof(memory));
	put(STR + o.unicode_length, 8, 8);
	put(STR + o.unicode_state, 4 << 2 | 1 << 5, 4);
	memcpy(memory + (STR - BASE) + o.unicode_compact_data, wide, sizeof(wide));
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), 0);
	assert_string_equal(text, "a\u00e9\u540d\U0001f40d\ufffd\ufffd\ufffdz");
	/* truncated between characters */
	assert_int_equal(python_text(&r, STR, text, 9, &cut), 0);
	assert_true(cut);
	assert_string_equal(text, "a\u00e9\u540d");
	put(STR + o.unicode_state, 1 << 2 | 1 << 5, 4); /* one byte, Latin-1 */
	put(STR + o.unicode_compact_data, 0xe9e9, 2);
	put(STR + o.unicode_length, 2, 8);
	assert_int_equal(python_text(&r, STR, text, sizeof(text), NULL), 0);
	assert_string_equal(text, "\u00e9\u00e9");
	assert_int_equal(python_text(&r, STR, text, 5, &cut), 0); /* exactly as long */
	assert_false(cut);
	assert_int_equal(python_text(&r, STR, text, 4, &cut), 0);
	assert_true(cut);
	assert_string_equal(text, "\u00e9");
}

static void long_texts(void **state)
{
	enum { LENGTH = 5000 };
	struct python_offsets o = offsets_of(12);
	struct remote r = { read_memory, NULL, &o, 0, READS };
	char text[LENGTH + 1], wanted[LENGTH + 1];
	bool cut;

	(void)state;
	memset(memory, 0, sizeof(memory));
	for (size_t i = 0; i < LENGTH; i++)
		put(STR + o.unicode_ascii_data + i, (uint8_t)(wanted[i] = (char)('a' + i % 23)), 1);
	wanted[LENGTH] = 0;
	put(STR + o.unicode_length, LENGTH, 8);
	put(STR + o.unicode_state, 1 << 2 | 1 << 5 | 1 << 6, 4);
	assert_int_equal(python_text(&r, STR, text, sizeof(text), &cut), 0);
	assert_false(cut);
	assert_string_equal(text, wanted);
	assert_int_equal(python_text(&r, STR, text, 3001, &cut), 0);
	assert_true(cut);
	wanted[3000] = 0;
	assert_string_equal(text, wanted);
}

/* ---- lines ---- */

static int line(uint8_t kind, const char *table, size_t size, uint32_t ip)
{
	struct python_offsets o = { .lines_kind = kind, .ip_kind = PYTHON_IP_BYTES };

	return python_line(&o, (const uint8_t *)table, size, 10, ip);
}

static void lines(void **state)
{
	/* 6 bytes of code in line 10, 50 in line 7, then line 307 in steps of 127 */
	static const char lnotab[] = { 6, -3, 50, 127, 0, 127, 0, 46 };
	/* 4 bytes in line 11, 2 without one, 4 in line 9 */
	static const char pairs[] = { 4, 1, 2, -128, 4, -2 };
	/* 2 units, line + 1; 1 unit without line; 8 units, line + 100, without columns; 1 unit,
	 * same line
	 */
	static const char location[] = { (char)0xd9, 0, 0,	    (char)0xf8, (char)0xef,
					 8 | 64,     3, (char)0x80, 0 };

	(void)state;
	assert_int_equal(line(PYTHON_LINES_LNOTAB, lnotab, 8, 0), 10);
	assert_int_equal(line(PYTHON_LINES_LNOTAB, lnotab, 8, 5), 10);
	assert_int_equal(line(PYTHON_LINES_LNOTAB, lnotab, 8, 6), 7);
	assert_int_equal(line(PYTHON_LINES_LNOTAB, lnotab, 8, 55), 7);
	assert_int_equal(line(PYTHON_LINES_LNOTAB, lnotab, 8, 56), 307);
	assert_int_equal(line(PYTHON_LINES_PAIRS, pairs, 6, 3), 11);
	assert_int_equal(line(PYTHON_LINES_PAIRS, pairs, 6, 4), -1);
	assert_int_equal(line(PYTHON_LINES_PAIRS, pairs, 6, 6), 9);
	assert_int_equal(line(PYTHON_LINES_PAIRS, pairs, 6, 10), -1);
	assert_int_equal(line(PYTHON_LINES_LOCATION, location, 9, 0), 11);
	assert_int_equal(line(PYTHON_LINES_LOCATION, location, 9, 3), 11);
	assert_int_equal(line(PYTHON_LINES_LOCATION, location, 9, 4), -1);
	assert_int_equal(line(PYTHON_LINES_LOCATION, location, 9, 6), 111);
	assert_int_equal(line(PYTHON_LINES_LOCATION, location, 9, 22), 111);
	assert_int_equal(line(PYTHON_LINES_LOCATION, location, 9, 24), -1);
}

static void broken_tables_of_lines(void **state)
{
	uint8_t table[256];

	(void)state;
	for (uint64_t seed = 0; seed < 2000; seed++) {
		for (size_t i = 0; i < sizeof(table); i++)
			table[i] = (uint8_t)(garbage(seed, i * 8) >> 7);
		for (uint8_t kind = PYTHON_LINES_LNOTAB; kind <= PYTHON_LINES_LOCATION; kind++)
			line(kind, (char *)table, seed % sizeof(table), (uint32_t)garbage(seed, 9));
	}
	memset(table, 0xff, sizeof(table)); /* an endless varint */
	assert_int_equal(line(PYTHON_LINES_LOCATION, (char *)table, sizeof(table), 1 << 20), -1);
}

static void an_allowance_is_kept(void **state)
{
	struct token_bucket a = { .per_second = 1000, .burst_ms = 100 };
	uint64_t now = 5 * NSEC_PER_SEC, n = 0;

	(void)state;
	while (token_bucket_take(&a, 1, true, now))
		n++;
	assert_int_equal(n, 50);
	while (token_bucket_take(&a, 1, false, now))
		n++;
	assert_int_equal(n, 100);
	for (uint64_t end = now + NSEC_PER_SEC; now < end; now += 100 * NSEC_PER_USEC)
		n += token_bucket_take(&a, 1, false, now);
	assert_in_range(n, 1095, 1100);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(lies_end),
		cmocka_unit_test(a_dict_and_its_lies),
		cmocka_unit_test(a_text_and_its_lies),
		cmocka_unit_test(characters),
		cmocka_unit_test(long_texts),
		cmocka_unit_test(lines),
		cmocka_unit_test(broken_tables_of_lines),
		cmocka_unit_test(an_allowance_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
