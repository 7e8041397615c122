// SPDX-License-Identifier: Apache-2.0
/* Texts from elsewhere: what a terminal gets of them, and where they are cut. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "text.h"

static void test_what_steers_a_terminal_is_a_question_mark(void **state)
{
	char to[64];

	(void)state;
	assert_string_equal(text_printable(to, sizeof(to), "a\033[2J\nb"), "a?[2J?b");
	assert_string_equal(text_printable(to, sizeof(to), "\xc2\x9b"), "?");	      /* CSI */
	assert_string_equal(text_printable(to, sizeof(to), "x\xe2\x80\xaey"), "x?y"); /* turns */
	assert_string_equal(text_printable(to, sizeof(to), "\xff\xc3"), "??");
	assert_string_equal(text_printable(to, sizeof(to), "\xed\xa0\x80"),
			    "???"); /* a surrogate */
	assert_string_equal(text_printable(to, sizeof(to), "Zoë 🐍"), "Zoë 🐍");
}

static void test_a_copy_is_cut_between_characters(void **state)
{
	char to[4];

	(void)state;
	assert_string_equal(text_printable(to, sizeof(to), "ab🐍"), "ab");
	assert_string_equal(text_printable(to, sizeof(to), "aëb"), "aë");
	assert_string_equal(text_printable(to, 1, "a"), "");
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
	check_prefix("名前-1", 3, 3, 2); /* half of the next one is none */
	check_prefix("名前-1", 5, 7, 5);
	check_prefix("", 3, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_steers_a_terminal_is_a_question_mark),
		cmocka_unit_test(test_a_copy_is_cut_between_characters),
		cmocka_unit_test(test_width_and_prefix_are_of_a_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
