// SPDX-License-Identifier: Apache-2.0
/* Untrusted text: filtering for terminals, and truncation. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/text.h"
#include "commands/report.h"

static void test_what_steers_a_terminal_is_a_question_mark(void **state)
{
	char to[64];

	(void)state;
	assert_string_equal(text_printable(to, sizeof(to), "a\033[2J\nb"), "a?[2J?b");
	assert_string_equal(text_printable(to, sizeof(to), "\xc2\x9b"), "?"); /* CSI */
	assert_string_equal(text_printable(to, sizeof(to), "x\xe2\x80\xaey"),
			    "x?y"); /* changes direction */
	assert_string_equal(text_printable(to, sizeof(to), "\xff\xc3"), "??");
	assert_string_equal(text_printable(to, sizeof(to), "\xed\xa0\x80"),
			    "???"); /* a surrogate */
	assert_string_equal(text_printable(to, sizeof(to), "Zoë 🐍"), "Zoë 🐍");
}

static void test_a_word_agrees_with_its_number(void **state)
{
	char text[64];

	(void)state;
	for (int n = 0; n < 4; n++) {
		snprintf(text, sizeof(text), "%d row%s %s", n, plural(n), counted(n, "is", "are"));
		assert_string_equal(text, n == 1   ? "1 row is"
					  : n == 0 ? "0 rows are"
					  : n == 2 ? "2 rows are"
						   : "3 rows are");
	}
	/* sums of weights, as "%.0f" prints them */
	for (double n = 0.45; n < 2; n += 0.1) {
		snprintf(text, sizeof(text), "%.0f", n);
		assert_string_equal(plural(n), strcmp(text, "1") != 0 ? "s" : "");
	}
	assert_string_equal(report_lost(text, sizeof(text), 1, "waits off the CPU"),
			    "1 wait off the CPU has no row for lack of space");
	assert_string_equal(report_lost(text, sizeof(text), 7, "requests"),
			    "7 requests have no row for lack of space");
}

static void test_a_copy_is_cut_between_characters(void **state)
{
	char to[4];

	(void)state;
	assert_string_equal(text_printable(to, sizeof(to), "ab🐍"), "ab");
	assert_string_equal(text_printable(to, sizeof(to), "aëb"), "aë");
	assert_string_equal(text_printable(to, 1, "a"), "");
}

static void test_a_line_is_one_line_however_long(void **state)
{
	char path[] = "/tmp/underspan-test-text-XXXXXX", got[20000];
	FILE *out = fdopen(mkstemp(path), "w+");
	size_t n;

	(void)state;
	assert_non_null(out);
	unlink(path);
	text_print_line(out, "%s=%s", "\033]0;x\a\n", "\xc2\x9b");
	text_print_line(out, "%9000s|", "\r");
	rewind(out);
	n = fread(got, 1, sizeof(got), out);
	fclose(out);
	assert_int_equal(n, strlen("?]0;x?"
				   "?=?\n") +
				    9002);
	assert_memory_equal(got,
			    "?]0;x?"
			    "?=?\n",
			    10);
	assert_memory_equal(got + n - 4, " ?|\n", 4);
}

static void check_prefix(const char *text, size_t columns, size_t bytes, size_t width)
{
	size_t got;

	assert_int_equal(text_prefix(text, columns, &got), bytes);
	assert_int_equal(got, width);
}

static void test_width_and_prefix_are_of_a_terminal(void **state)
{
	(void)state;
	assert_int_equal(text_width(""), 0);
	assert_int_equal(text_width("Zoë"), 3);
	assert_int_equal(text_width("名前-1"), 6);
	assert_int_equal(text_width("Zoe\xcc\x88"), 3); /* a combining mark */
	assert_int_equal(text_width("a\xff"), 2);
	check_prefix("Zoë", 0, 0, 0);
	check_prefix("Zoë", 2, 2, 2);
	check_prefix("Zoë", 3, 4, 3);
	check_prefix("Zoë", 80, 4, 3);
	check_prefix("名前-1", 2, 3, 2);
	check_prefix("名前-1", 3, 3, 2); /* half of the next character is not included */
	check_prefix("名前-1", 5, 7, 5);
	check_prefix("", 3, 0, 0);
}

/* Complete, and split at every position: equal output. */
static void check_terminal(const char *bytes, size_t len, const char *expected)
{
	for (size_t at = 0; at <= len; at++) {
		struct terminal_text t = { { 0 } };
		char *got = NULL;
		size_t n = 0;
		FILE *out = open_memstream(&got, &n);

		assert_non_null(out);
		assert_int_equal(terminal_text_print(&t, bytes, at, out), 0);
		assert_int_equal(terminal_text_print(&t, bytes + at, len - at, out), 0);
		fclose(out);
		assert_int_equal(n, strlen(expected));
		assert_string_equal(got, expected);
		free(got);
	}
}

static void test_what_comes_in_pieces_steers_no_terminal(void **state)
{
	(void)state;
	check_terminal("a\tb\n", 4, "a\tb\n");
	check_terminal("\033[2Jx\r\0y", 8, "?[2Jx??y");
	check_terminal("\xc2\x9b"
		       "1m",
		       4, "?1m");
	check_terminal("\x9b"
		       "1m",
		       3, "?1m");
	check_terminal("Zoë 名前 😀\n", strlen("Zoë 名前 😀\n"), "Zoë 名前 😀\n");
	check_terminal("\xff\xe2\x80\xae.\n", 6, "??.\n");
	/* incomplete character: the next byte is not part of it */
	check_terminal("\xf0\x9f\n", 3, "??\n");
	check_terminal("\xe5\x90\033x", 4, "???x");
}

static void check_base64(const char *plain, const char *encoded)
{
	struct buffer b = { 0 };
	uint8_t decoded[16];

	assert_int_equal(base64_append(&b, (struct text){ plain, strlen(plain) }), 0);
	assert_int_equal(b.len, strlen(encoded));
	assert_memory_equal(b.data ? b.data : "", encoded, b.len);
	assert_int_equal(base64_decode((struct text){ encoded, b.len }, decoded, sizeof(decoded)),
			 strlen(plain));
	assert_memory_equal(decoded, plain, strlen(plain));
	buffer_free(&b);
}

/* The test vectors of RFC 4648, section 10. */
static void test_base64(void **state)
{
	uint8_t decoded[2];

	(void)state;
	check_base64("", "");
	check_base64("f", "Zg==");
	check_base64("fo", "Zm8=");
	check_base64("foo", "Zm9v");
	check_base64("foob", "Zm9vYg==");
	check_base64("fooba", "Zm9vYmE=");
	check_base64("foobar", "Zm9vYmFy");
	check_base64("\xfb\xff\xbf", "+/+/");
	assert_int_equal(base64_decode((struct text){ "-_8", 3 }, decoded, 2), 2); /* of URLs */
	assert_int_equal(decoded[0], 0xfb);
	assert_int_equal(decoded[1], 0xff);
	assert_int_equal(base64_decode((struct text){ "Zm9v", 4 }, decoded, 2), -1);
	assert_int_equal(base64_decode((struct text){ "Zm=v", 4 }, decoded, 2), -1);
	assert_int_equal(base64_decode((struct text){ "Z\0==", 4 }, decoded, 2), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_steers_a_terminal_is_a_question_mark),
		cmocka_unit_test(test_a_word_agrees_with_its_number),
		cmocka_unit_test(test_a_copy_is_cut_between_characters),
		cmocka_unit_test(test_a_line_is_one_line_however_long),
		cmocka_unit_test(test_what_comes_in_pieces_steers_no_terminal),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_width_and_prefix_are_of_a_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
