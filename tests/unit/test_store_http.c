// SPDX-License-Identifier: Apache-2.0
/* The store's HTTP conventions: authentication, statuses, content types, quoting, bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "store/body.h"
#include "store/dialect.h"

static struct text text(const char *s)
{
	return (struct text){ s, strlen(s) };
}

static void test_basic_auth(void **state)
{
	char user[32], password[32];

	(void)state;
	assert_true(parse_basic_auth("Basic ZGVmYXVsdDpwYTpzcw==", user, sizeof(user), password,
				     sizeof(password)));
	assert_string_equal(user, "default");
	assert_string_equal(password, "pa:ss"); /* the first colon separates */
	assert_true(
		parse_basic_auth("basic  Og==", user, sizeof(user), password, sizeof(password)));
	assert_string_equal(user, "");
	for (const char *const *bad =
		     (const char *const[]){ "", "Basic", "Bearer ZGVmYXVsdDpwYXNz",
					    "Basic ZGVmYXVsdA==", "Basic %%%%",
					    "Basic ZGVm YXVsdDpwYXNz", "Basic ZGVmYXVsdDpwYXNz=x",
					    "Basic AGE6Yg==", NULL };
	     *bad; bad++)
		assert_false(
			parse_basic_auth(*bad, user, sizeof(user), password, sizeof(password)));
	/* longer than any buffer */
	char huge[4096] = "Basic ";

	memset(huge + 6, 'Q', sizeof(huge) - 7);
	assert_false(parse_basic_auth(huge, user, sizeof(user), password, sizeof(password)));
}

static void test_same_secret(void **state)
{
	(void)state;
	assert_true(same_secret("abc", "abc"));
	assert_false(same_secret("abd", "abc"));
	assert_false(same_secret("", "abc"));
	assert_false(same_secret("abcabc", "abc"));
	assert_false(same_secret("abc", "abcabc"));
	assert_false(same_secret("abc", ""));
}

static void test_status(void **state)
{
	(void)state;
	assert_int_equal(exception_http_status(62), 400);
	assert_int_equal(exception_http_status(27), 400);
	assert_int_equal(exception_http_status(60), 404);
	assert_int_equal(exception_http_status(81), 404);
	assert_int_equal(exception_http_status(115), 404);
	assert_int_equal(exception_http_status(194), 401);
	assert_int_equal(exception_http_status(516), 403);
	assert_int_equal(exception_http_status(229), 413);
	assert_int_equal(exception_http_status(48), 501);
	assert_int_equal(exception_http_status(241), 500);
	assert_int_equal(exception_http_status(16), 500);
	assert_int_equal(exception_http_status(999999), 500);
}

static void test_failure_text(void **state)
{
	struct failure f;
	char huge[8000];

	(void)state;
	set_failure(&f, EXCEPTION_UNKNOWN_SETTING, "Unknown setting '%s'", "x");
	assert_int_equal(f.code, 115);
	assert_string_equal(f.text,
			    "Code: 115. DB::Exception: Unknown setting 'x'. (UNKNOWN_SETTING)");
	memset(huge, 'a', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	set_failure(&f, EXCEPTION_SYNTAX_ERROR, "%s", huge);
	assert_non_null(strstr(f.text, "aaa. (SYNTAX_ERROR)"));
}

static void test_formats(void **state)
{
	(void)state;
	assert_string_equal(format_content_type(text("TSVWithNames")),
			    "text/tab-separated-values; charset=UTF-8");
	assert_string_equal(format_content_type(text("JSONEachRow")),
			    "application/x-ndjson; charset=UTF-8");
	assert_string_equal(format_content_type(text("JSONCompact")),
			    "application/json; charset=UTF-8");
	assert_string_equal(format_content_type(text("Native")), "application/octet-stream");
	assert_string_equal(format_content_type(text("PrettyCompact")),
			    "text/plain; charset=UTF-8");
	assert_true(format_can_stream(text("jsoneachrow")));
	assert_true(format_can_stream(text("Native")));
	/* formats with header or footer */
	for (const char *const *f = (const char *const[]){ "JSON", "CSVWithNames", "Parquet", "XML",
							   "PrettyCompact", "Values", NULL };
	     *f; f++)
		assert_false(format_can_stream(text(*f)));
	assert_true(is_plain_name(text("JSONEachRow")));
	assert_false(is_plain_name(text("")));
	assert_false(is_plain_name(text("JSON SETTINGS x = 1")));
}

static void test_quoting(void **state)
{
	size_t len = 0, size = 0;
	char *buf = NULL;

	(void)state;
	assert_true(append_quoted(&buf, &len, &size, text("it's \\ `x`"), '\''));
	assert_string_equal(buf, "'it\\'s \\\\ `x`'");
	assert_true(append_quoted(&buf, &len, &size, (struct text){ "a\0b", 3 }, '`'));
	assert_string_equal(buf, "'it\\'s \\\\ `x`'`a\\0b`");
	free(buf);
}

static size_t pack(const char *bytes, size_t n, int window, char *out, size_t size)
{
	z_stream z = { .next_in = (Bytef *)bytes,
		       .avail_in = (uInt)n,
		       .next_out = (Bytef *)out,
		       .avail_out = (uInt)size };

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return z.total_out;
}

static void test_body_plain(void **state)
{
	struct body_budget budget = { .max_body = 100, .max_total = 150 };
	struct body a, b;
	char bytes[101] = { 0 };

	(void)state;
	assert_int_equal(body_begin(&a, &budget, BODY_PLAIN), 0);
	assert_int_equal(body_append(&a, bytes, 60), 0);
	assert_int_equal(body_append(&a, bytes, 40), 0);
	assert_int_equal(a.len, 100);
	assert_int_equal(body_append(&a, bytes, 1), -EFBIG);
	/* the other body exceeds the shared budget */
	assert_int_equal(body_begin(&b, &budget, BODY_PLAIN), 0);
	assert_int_equal(body_append(&b, bytes, 1), -ENOBUFS);
	body_free(&b);
	body_free(&a);
	assert_int_equal(atomic_load(&budget.held), 0);
}

static void test_body_packed(void **state)
{
	struct body_budget budget = { .max_body = 1 << 20, .max_total = 1 << 20 };
	char packed[256];
	size_t n;

	(void)state;
	for (int window = MAX_WBITS; window <= MAX_WBITS + 16; window += 16) {
		struct body b;

		n = pack("hello", 5, window, packed, sizeof(packed));
		assert_int_equal(body_begin(&b, &budget, BODY_GZIP), 0);
		for (size_t i = 0; i < n; i++) /* for every chunk size */
			assert_int_equal(body_append(&b, packed + i, 1), 0);
		assert_int_equal(body_finish(&b), 0);
		assert_int_equal(b.len, 5);
		assert_memory_equal(b.bytes, "hello", 5);
		body_free(&b);

		/* truncated at every position */
		for (size_t cut = 1; cut < n; cut++) {
			assert_int_equal(body_begin(&b, &budget, BODY_GZIP), 0);
			assert_int_equal(body_append(&b, packed, cut), 0);
			assert_int_equal(body_finish(&b), -EBADMSG);
			body_free(&b);
		}
	}
	/* two consecutive members */
	struct body b;

	n = pack("hello", 5, MAX_WBITS + 16, packed, sizeof(packed));
	n += pack("world", 5, MAX_WBITS + 16, packed + n, sizeof(packed) - n);
	assert_int_equal(body_begin(&b, &budget, BODY_GZIP), 0);
	assert_int_equal(body_append(&b, packed, n), 0);
	assert_int_equal(body_finish(&b), 0);
	assert_int_equal(b.len, 10);
	body_free(&b);
	/* not gzip; empty */
	assert_int_equal(body_begin(&b, &budget, BODY_GZIP), 0);
	assert_int_equal(body_append(&b, "plain text", 10), -EBADMSG);
	body_free(&b);
	assert_int_equal(body_begin(&b, &budget, BODY_GZIP), 0);
	assert_int_equal(body_finish(&b), 0);
	body_free(&b);
}

static void test_body_bomb(void **state)
{
	struct body_budget budget = { .max_body = 1 << 20, .max_total = 1 << 22 };
	size_t size = 64 << 20, n;
	char *zeros = calloc(1, size), *packed = malloc(1 << 20);
	struct body b;

	(void)state;
	n = pack(zeros, size, MAX_WBITS + 16, packed, 1 << 20);
	assert_true(n < 100 * 1024);
	assert_int_equal(body_begin(&b, &budget, BODY_GZIP), 0);
	assert_int_equal(body_append(&b, packed, n), -EFBIG);
	assert_true(b.size <= budget.max_body);
	body_free(&b);
	free(zeros);
	free(packed);
}

static void test_encodings(void **state)
{
	(void)state;
	assert_int_equal(body_encoding_parse(NULL), BODY_PLAIN);
	assert_int_equal(body_encoding_parse("identity"), BODY_PLAIN);
	assert_int_equal(body_encoding_parse("GZIP"), BODY_GZIP);
	assert_int_equal(body_encoding_parse("deflate"), BODY_GZIP);
	assert_int_equal(body_encoding_parse("zstd"), BODY_UNKNOWN);
	assert_int_equal(body_encoding_parse("gzip, gzip"), BODY_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_basic_auth), cmocka_unit_test(test_same_secret),
		cmocka_unit_test(test_status),	   cmocka_unit_test(test_failure_text),
		cmocka_unit_test(test_formats),	   cmocka_unit_test(test_quoting),
		cmocka_unit_test(test_body_plain), cmocka_unit_test(test_body_packed),
		cmocka_unit_test(test_body_bomb),  cmocka_unit_test(test_encodings),
	};

	return cmocka_run_group_tests_name("store/http", tests, NULL, NULL);
}
