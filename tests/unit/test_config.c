// SPDX-License-Identifier: Apache-2.0
/* Options: flags and files fill the same targets; what is wrong is named. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "config.h"

static bool flag;
static uint64_t number, seconds;
static char *string;
static int choice;
static struct string_list list;
static struct pid_list pids;
static const char *const choices[] = { "red", "green", NULL };

static const struct option options[] = {
	{ .key = "flag", .type = OPTION_BOOL, .target = &flag },
	{ .key = "part.number",
	  .type = OPTION_UINT,
	  .target = &number,
	  .arg = "N",
	  .min = 2,
	  .max = 9 },
	{ .key = "seconds", .type = OPTION_SECONDS, .target = &seconds, .arg = "S", .max = 100 },
	{ .key = "some_string", .type = OPTION_STRING, .target = &string, .arg = "X" },
	{ .key = "choice",
	  .type = OPTION_CHOICE,
	  .target = &choice,
	  .arg = "C",
	  .choices = choices },
	{ .key = "list", .type = OPTION_LIST, .target = &list, .arg = "A,B" },
	{ .key = "pid", .type = OPTION_PIDS, .target = &pids, .arg = "PID", .letter = 'p' },
	{ .key = "apply", .type = OPTION_BOOL, .target = &flag, .flag_only = true },
};
static const struct option_table tables[] = { { options, ARRAY_SIZE(options) }, { 0 } };

static int reset(void **state)
{
	(void)state;
	config_free(tables);
	flag = false;
	number = seconds = 0;
	choice = 0;
	return 0;
}

/* Parses the words; `why` afterwards in `said`. */
static char said[512];
static int parse(const char *const *words, size_t n)
{
	char *argv[16] = { (char *)"command" };
	struct why why = { { 0 } };
	int err;

	for (size_t i = 0; i < n; i++)
		argv[i + 1] = (char *)words[i];
	err = config_parse(tables, (int)n + 1, argv, NULL, NULL, &why);
	strcpy(said, why.text);
	return err;
}
#define PARSE(...)                                                                                 \
	parse((const char *const[]){ __VA_ARGS__ },                                                \
	      sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static void assert_refused(int err, const char *key)
{
	assert_int_equal(err, -EINVAL);
	if (!strstr(said, key))
		fail_msg("'%s' does not name '%s'", said, key);
}

static void flags_fill_their_targets(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--flag", "--part.number=7", "--seconds", "1.5", "--some-string=x y",
			       "--choice=green", "--list=a,b", "--pid=1,2", "--pid=3"),
			 0);
	assert_true(flag);
	assert_int_equal(number, 7);
	assert_int_equal(seconds, 1500000000);
	assert_string_equal(string, "x y");
	assert_int_equal(choice, 1);
	assert_int_equal(list.n, 2);
	assert_string_equal(list.items[1], "b");
	assert_int_equal(pids.n, 3);
	assert_int_equal(pids.items[2], 3);
}

static void a_letter_is_short_for_its_flag(void **state)
{
	(void)state;
	assert_int_equal(PARSE("-p", "11", "-p12"), 0);
	assert_int_equal(pids.n, 2);
	assert_int_equal(pids.items[1], 12);
	assert_refused(PARSE("-p"), "pid");
}

static void wrong_flags_are_named(void **state)
{
	(void)state;
	assert_refused(PARSE("--nonsense"), "nonsense");
	assert_refused(PARSE("--part.number=1"), "part.number");
	assert_refused(PARSE("--part.number=10"), "part.number");
	assert_refused(PARSE("--part.number=-3"), "part.number");
	assert_refused(PARSE("--part.number=3x"), "part.number");
	assert_refused(PARSE("--part.number=99999999999999999999"), "part.number");
	assert_refused(PARSE("--part.number="), "part.number");
	assert_refused(PARSE("--seconds=nan"), "seconds");
	assert_refused(PARSE("--seconds=101"), "seconds");
	assert_refused(PARSE("--flag=maybe"), "flag");
	assert_refused(PARSE("--choice=blue"), "red, green");
	assert_refused(PARSE("--list=a,,b"), "list");
	assert_refused(PARSE("--pid=0"), "pid");
	assert_refused(PARSE("--pid=12a"), "pid");
	assert_refused(PARSE("--some_string"), "some_string");
	assert_refused(PARSE("stray"), "stray");
	assert_refused(PARSE("-x"), "-x");
}

static const char *write_file(const char *text)
{
	static const char path[] = "/tmp/underspan-test-config.json";
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return path;
}

static int parse_file(const char *text)
{
	int err = PARSE("-c", write_file(text));

	unlink("/tmp/underspan-test-config.json");
	return err;
}

static void a_file_says_the_same_dotted_or_nested(void **state)
{
	(void)state;
	assert_int_equal(parse_file("{\"part.number\": 3, \"list\": [\"x\"], \"pid\": [4, 5]}"), 0);
	assert_int_equal(number, 3);
	assert_int_equal(list.n, 1);
	assert_int_equal(pids.n, 2);
	assert_int_equal(
		parse_file("{\"part\": {\"number\": 4}, \"flag\": true, \"seconds\": 0.25}"), 0);
	assert_int_equal(number, 4);
	assert_int_equal(seconds, 250000000);
	assert_true(flag);
}

static void a_flag_beats_the_file(void **state)
{
	const char *path = write_file("{\"part.number\": 3, \"list\": [\"x\", \"y\"]}");

	(void)state;
	assert_int_equal(PARSE("--part.number=5", "--list=z", "-c", path), 0);
	unlink(path);
	assert_int_equal(number, 5);
	assert_int_equal(list.n, 1);
	assert_string_equal(list.items[0], "z");
}

static void wrong_files_are_named(void **state)
{
	(void)state;
	assert_refused(PARSE("-c"), "-c");
	assert_refused(PARSE("--config=/nonexistent/x.json"), "/nonexistent/x.json");
	assert_refused(parse_file("{\"nonsense\": 1}"), "nonsense");
	assert_refused(parse_file("{\"part\": {\"nonsense\": 1}}"), "part.nonsense");
	assert_refused(parse_file("{\"part.number\": 1}"), "part.number");
	assert_refused(parse_file("{\"part.number\": [3]}"), "part.number");
	assert_refused(parse_file("{\"some_string\": null}"), "some_string");
	assert_refused(parse_file("{\"apply\": true}"), "apply");
	assert_refused(parse_file("[]"), "object");
	assert_refused(parse_file("{\"part.number\": 3"), ":1:");
	assert_refused(parse_file("{\"flag\": true, \"flag\": true}"), "duplicate");
	assert_refused(parse_file(""), "JSON");
}

static void help_is_recognised_anywhere(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--flag", "--help", "--nonsense"), 1);
	assert_int_equal(PARSE("-h"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(flags_fill_their_targets, reset),
		cmocka_unit_test_setup(a_letter_is_short_for_its_flag, reset),
		cmocka_unit_test_setup(wrong_flags_are_named, reset),
		cmocka_unit_test_setup(a_file_says_the_same_dotted_or_nested, reset),
		cmocka_unit_test_setup(a_flag_beats_the_file, reset),
		cmocka_unit_test_setup(wrong_files_are_named, reset),
		cmocka_unit_test_setup_teardown(help_is_recognised_anywhere, reset, reset),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
