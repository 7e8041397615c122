// SPDX-License-Identifier: Apache-2.0
/* Deflate blocks and checksums of both libraries, read back by zlib. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "pipeline/deflate.h"

enum { MOST = 700 << 10, PIECES = 5 };

static void fill(char *bytes, size_t n, unsigned kind)
{
	static const char row[] =
		"{\"cause\":\"lock\",\"tid\":4711,\"py_stack\":[\"work (/srv/app.py:";

	for (size_t i = 0; i < n; i++)
		bytes[i] = kind == 0   ? (char)rand() /* cannot be compressed */
			   : kind == 1 ? 'x'
				       : row[(i + (rand() % 50 == 0)) % (sizeof(row) - 1)];
}

static void read_back(const struct buffer *deflated, const char *bytes, size_t n)
{
	char *back = malloc(n + 1);
	z_stream z = { .next_in = (Bytef *)deflated->data,
		       .avail_in = (uInt)deflated->len,
		       .next_out = (Bytef *)back,
		       .avail_out = (uInt)n + 1 };

	assert_non_null(back);
	assert_int_equal(inflateInit2(&z, -15), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.avail_in, 0);
	assert_int_equal(z.avail_out, 1);
	assert_memory_equal(back, bytes, n);
	inflateEnd(&z);
	free(back);
}

/* One text in pieces of random lengths, also empty ones, into a buffer of random room. */
static void check(char *bytes, size_t n, unsigned kind)
{
	struct buffer out = { 0 };
	uint32_t crc = 0;
	size_t at = 0;

	fill(bytes, n, kind);
	assert_int_equal(buffer_reserve(&out, 1 + (size_t)rand() % 70000), 0);
	for (int i = 0; i < PIECES; i++) {
		bool last = i == PIECES - 1;
		size_t len = last ? n - at : (size_t)rand() % (n - at + 1);
		struct buffer text = { .data = bytes + at, .len = len };

		assert_int_equal(deflate_text(&text, last, &out), 0);
		crc = deflate_crc32(crc, bytes + at, len);
		at += len;
	}
	assert_int_equal(crc, crc32(0, (const Bytef *)bytes, (uInt)n));
	read_back(&out, bytes, n);
	buffer_free(&out);
}

static void check_all(void)
{
	char *bytes = malloc(MOST);

	assert_non_null(bytes);
	srand(1);
	for (unsigned i = 0; i < 300; i++)
		check(bytes, i < 100 ? i : (size_t)rand() % (i % 10 ? 5000 : MOST), i % 3);
	free(bytes);
}

static void by_zlib(void **state)
{
	(void)state;
	deflate_zlib_only = true;
	assert_string_equal(deflate_library(), "zlib");
	check_all();
	deflate_zlib_only = false;
}

/* libisal2 comes with what a build needs. */
static void by_isal(void **state)
{
	(void)state;
	assert_string_equal(deflate_library(), "ISA-L");
	check_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(by_zlib), cmocka_unit_test(by_isal) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
