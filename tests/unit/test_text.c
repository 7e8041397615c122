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

static void test_width_and_prefix_are_of_characters(void **state)
{
	(void)state;
	assert_int_equal(text_width(""), 0);
	assert_int_equal(text_width("Zoë 🐍"), 5);
	assert_int_equal(text_prefix("Zoë 🐍", 0), 0);
	assert_int_equal(text_prefix("Zoë 🐍", 2), 2);
	assert_int_equal(text_prefix("Zoë 🐍", 3), 4);
	assert_int_equal(text_prefix("Zoë 🐍", 5), strlen("Zoë 🐍"));
	assert_int_equal(text_prefix("Zoë 🐍", 80), strlen("Zoë 🐍"));
	assert_int_equal(text_prefix("", 3), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_steers_a_terminal_is_a_question_mark),
		cmocka_unit_test(test_a_copy_is_cut_between_characters),
		cmocka_unit_test(test_width_and_prefix_are_of_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
