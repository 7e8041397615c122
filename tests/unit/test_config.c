// SPDX-License-Identifier: Apache-2.0
/* Options: flags and files fill the same targets; errors name the key. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/config.h"

static bool flag;
static uint64_t number, seconds, wait_us, bytes, mb;
static bool local;
static char *string, *url, *serve;
static int choice;
static struct string_list list;
static struct pid_list pids;
static const char *const choices[] = { "red", "green", NULL };

static const struct option options[] = {
	{ .key = "flag", .help = "x", .type = OPTION_BOOL, .target = &flag },
	{ .key = "part.number",
	  .help = "x",
	  .type = OPTION_UINT,
	  .target = &number,
	  .arg = "N",
	  .min = 2,
	  .max = 9 },
	{ .key = "seconds",
	  .help = "x",
	  .type = OPTION_SECONDS,
	  .target = &seconds,
	  .arg = "S",
	  .max = 100 },
	{ .key = "some_string", .help = "x", .type = OPTION_STRING, .target = &string, .arg = "X" },
	{ .key = "choice",
	  .help = "x",
	  .type = OPTION_CHOICE,
	  .target = &choice,
	  .arg = "C",
	  .choices = choices },
	{ .key = "list", .help = "x", .type = OPTION_LIST, .target = &list, .arg = "A,B" },
	{ .key = "pid",
	  .help = "x",
	  .type = OPTION_PIDS,
	  .target = &pids,
	  .arg = "PID",
	  .letter = 'p' },
	{ .key = "apply", .type = OPTION_BOOL, .target = &flag, .flag_only = true },
	{ .key = "wait_us", .type = OPTION_UINT, .target = &wait_us, .unit = UNIT_US },
	{ .key = "bytes",
	  .type = OPTION_UINT,
	  .target = &bytes,
	  .unit = UNIT_BYTES,
	  .min = 16,
	  .max = 1 << 30 },
	{ .key = "mb", .type = OPTION_UINT, .target = &mb, .unit = UNIT_MIB },
	{ .key = "url", .type = OPTION_STRING, .target = &url, .group = "place" },
	{ .key = "local", .type = OPTION_BOOL, .target = &local, .group = "place" },
	{ .key = "serve", .type = OPTION_STRING, .target = &serve, .bare = "here" },
};
static const struct option_table tables[] = { { options, ARRAY_SIZE(options) }, { 0 } };

static int reset(void **state)
{
	(void)state;
	config_free(tables);
	flag = false;
	number = seconds = wait_us = bytes = mb = 0;
	local = false;
	config_set_known(NULL);
	config_use_default_file(NULL, NULL);
	choice = 0;
	return 0;
}

/* Parses the words; stores `why` in `said`. */
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
	assert_int_equal(PARSE("--pid=4,5,4", "-p", "5"), 0);
	assert_int_equal(pids.n, 2);
	assert_int_equal(pids.items[1], 5);
	assert_refused(PARSE("-p"), "pid");
}

static void a_bare_flag_takes_no_word(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--serve", "--part.number=7"), 0);
	assert_string_equal(serve, "here");
	assert_refused(PARSE("--serve", "there"), "unexpected argument 'there'");
	assert_int_equal(PARSE("--serve=there"), 0);
	assert_string_equal(serve, "there");
	assert_int_equal(PARSE("--serve=true"), 0); /* as {"serve": true} in a file */
	assert_string_equal(serve, "here");
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
	assert_refused(PARSE("--choice=gren"), "did you mean green?");
	assert_refused(PARSE("--flg"), "did you mean --flag?");
	assert_refused(PARSE("--part-numbre=3"), "did you mean --part.number?");
	assert_refused(PARSE("--some"), "did you mean --some_string?");
	assert_refused(PARSE("--zzz"), "--help");
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
	assert_refused(parse_file("\xef\xbb\xbf{\"part.number\": 3}"), "byte order mark");
	assert_refused(parse_file("{\"part.number\": 3"), ":1:");
	assert_refused(parse_file("{\"flag\": true, \"flag\": true}"), "duplicate");
	assert_refused(parse_file("{\"part.number\": 3, \"part\": {\"number\": 4}}"),
		       "part.number: given twice, with a dot and in an object");
	assert_refused(parse_file("{\"part\": {\"number\": 4}, \"part.number\": 3}"),
		       "part.number: given twice");
	assert_refused(parse_file(""), "JSON");
}

/* ---- units ---- */

static void units_are_understood(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--seconds=250ms"), 0);
	assert_int_equal(seconds, 250000000);
	assert_int_equal(PARSE("--seconds=1.5m"), 0);
	assert_int_equal(seconds, 90 * NSEC_PER_SEC);
	assert_int_equal(PARSE("--wait_us=2ms"), 0);
	assert_int_equal(wait_us, 2000);
	assert_int_equal(PARSE("--wait_us=1h"), 0);
	assert_int_equal(wait_us, 3600000000);
	assert_int_equal(PARSE("--wait_us=7d"), 0);
	assert_int_equal(wait_us, 7 * 86400 * 1000000ULL);
	assert_int_equal(PARSE("--bytes=8MiB"), 0);
	assert_int_equal(bytes, 8 << 20);
	assert_int_equal(PARSE("--bytes=64k"), 0);
	assert_int_equal(bytes, 64 << 10);
	assert_int_equal(PARSE("--bytes=1.5 KIB"), 0);
	assert_int_equal(bytes, 1536);
	assert_int_equal(PARSE("--bytes=64kB"), 0);
	assert_int_equal(bytes, 64000);
	assert_int_equal(PARSE("--mb=2GiB"), 0);
	assert_int_equal(mb, 2048);
	assert_int_equal(parse_file("{\"bytes\": \"1MiB\", \"seconds\": \"10s\"}"), 0);
	assert_int_equal(bytes, 1 << 20);
	assert_int_equal(seconds, 10 * NSEC_PER_SEC);
}

/* Plain numbers keep their meaning. */
static void plain_numbers_mean_what_they_did(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--seconds=10", "--wait_us=500", "--bytes=512", "--mb=3"), 0);
	assert_int_equal(seconds, 10 * NSEC_PER_SEC);
	assert_int_equal(wait_us, 500);
	assert_int_equal(bytes, 512);
	assert_int_equal(mb, 3);
	assert_int_equal(PARSE("--wait_us=18446744073709551615"), 0);
	assert_true(wait_us == UINT64_MAX);
}

static void wrong_units_are_named(void **state)
{
	(void)state;
	assert_refused(PARSE("--seconds=3parsecs"), "250ms");
	assert_refused(PARSE("--seconds=3parsecs"), "3parsecs");
	assert_refused(PARSE("--seconds=2m"), "out of range, use 0 to 100s");
	assert_refused(PARSE("--seconds=0x10"), "seconds");
	assert_refused(PARSE("--seconds=s"), "seconds");
	assert_refused(PARSE("--seconds=8MiB"), "duration");
	assert_refused(PARSE("--bytes=8s"), "size");
	assert_refused(PARSE("--bytes=8"), "use 16B to 1GiB");
	assert_refused(PARSE("--bytes=2GiB"), "use 16B to 1GiB");
	assert_refused(PARSE("--wait_us=10ns"), "whole number of microseconds");
	assert_refused(PARSE("--wait_us=-1s"), "wait_us");
	assert_refused(PARSE("--wait_us=99999999999999999999"), "too large, use 213503d or less");
	assert_refused(PARSE("--mb=99999999999999999999"), "too large, use 16777215TiB or less");
	assert_refused(PARSE("--wait_us=1e30d"), "wait_us");
	assert_refused(PARSE("--part.number=3s"), "part.number");
}

/* ---- the environment, other commands' keys, the default file ---- */

static void the_environment_lies_between(void **state)
{
	const char *path = write_file("{\"part.number\": 3, \"bytes\": 20, \"pid\": [1, 2]}");

	(void)state;
	setenv("UNDERSPAN_PART_NUMBER", "4", 1);
	setenv("UNDERSPAN_SECONDS", "2s", 1);
	setenv("UNDERSPAN_PID", "7,8", 1);
	setenv("UNDERSPAN_APPLY", "true",
	       1); /* flag-only options are not read from the environment */
	setenv("UNDERSPAN_SOME_STRING", "", 1);
	assert_int_equal(PARSE("-c", path, "--seconds=5"), 0);
	assert_int_equal(number, 4);
	assert_int_equal(bytes, 20);
	assert_int_equal(seconds, 5 * NSEC_PER_SEC);
	assert_int_equal(pids.n, 2);
	assert_int_equal(pids.items[0], 7);
	assert_false(flag);
	assert_null(string);
	assert_int_equal(PARSE("-c", path, "-p1", "-p2", "-p3"), 0);
	assert_int_equal(pids.n, 3);
	setenv("UNDERSPAN_PART_NUMBER", "many", 1);
	assert_refused(PARSE("-c", path), "UNDERSPAN_PART_NUMBER: part.number: 'many'");
	unsetenv("UNDERSPAN_PART_NUMBER");
	unsetenv("UNDERSPAN_SECONDS");
	unsetenv("UNDERSPAN_PID");
	unsetenv("UNDERSPAN_APPLY");
	unsetenv("UNDERSPAN_SOME_STRING");
	unlink(path);
}

static void other_commands_keys_are_passed_over(void **state)
{
	static uint64_t others_number;
	static const struct option others[] = {
		{ .key = "other.size", .type = OPTION_UINT, .target = &others_number, .help = "x" },
		{ .key = "verb", .type = OPTION_BOOL, .target = &flag, .flag_only = true },
	};
	const struct option_table all[] = { { options, ARRAY_SIZE(options) },
					    { others, ARRAY_SIZE(others) },
					    { 0 } };

	(void)state;
	assert_refused(parse_file("{\"other\": {\"size\": 3}}"), "other.size");
	config_set_known(all);
	assert_int_equal(parse_file("{\"other\": {\"size\": 3}, \"part.number\": 5}"), 0);
	assert_int_equal(number, 5);
	assert_int_equal(others_number, 0);
	assert_refused(parse_file("{\"other\": {\"sise\": 3}}"), "did you mean other.size?");
	assert_refused(parse_file("{\"verb\": true}"), "flag only");
	assert_refused(PARSE("--other.size=3"), "other.size");
}

static void one_place_replaces_another(void **state)
{
	const char *path = write_file("{\"url\": \"http://x\", \"part.number\": 3}");

	(void)state;
	assert_int_equal(PARSE("-c", path, "--local"), 0);
	assert_null(url);
	assert_true(local);
	assert_int_equal(number, 3);
	assert_int_equal(PARSE("--url=a", "--local"), 0); /* refused by the command */
	assert_non_null(url);
	unlink(path);
}

static void a_default_file_gives_its_keys_only(void **state)
{
	static const struct option_table keys[] = { { &options[3], 1 }, { 0 } };
	const char *path = write_file("{\"some_string\": \"x\", \"part.number\": 3}");

	(void)state;
	config_use_default_file("/nonexistent/default.json", keys);
	assert_int_equal(PARSE("--flag"), 0);
	config_use_default_file(path, keys);
	assert_int_equal(PARSE("--flag"), 0);
	assert_string_equal(string, "x");
	assert_int_equal(number, 0);
	assert_true(config_from_default_file("some_string"));
	assert_false(config_from_default_file("part.number"));
	assert_string_equal(config_where("flag"), "flag");
	config_use_default_file(path, NULL); /* all */
	assert_int_equal(PARSE("--some_string=y"), 0);
	assert_int_equal(number, 3);
	assert_string_equal(config_where("part.number"), path);
	assert_false(config_from_default_file("some_string"));
	config_use_default_file(path, keys);
	config_free(tables);
	assert_int_equal(PARSE("-c", "none"), 0);
	assert_null(string);
	assert_int_equal(PARSE("--no-config"), 0);
	assert_null(string);
	assert_int_equal(PARSE("--some_string=y"), 0);
	assert_string_equal(string, "y");
	write_file("{\"nonsense\": 1}");
	assert_refused(PARSE("--flag"), "nonsense");
	unlink(path);
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
		cmocka_unit_test_setup(a_bare_flag_takes_no_word, reset),
		cmocka_unit_test_setup(wrong_flags_are_named, reset),
		cmocka_unit_test_setup(a_file_says_the_same_dotted_or_nested, reset),
		cmocka_unit_test_setup(a_flag_beats_the_file, reset),
		cmocka_unit_test_setup(wrong_files_are_named, reset),
		cmocka_unit_test_setup(units_are_understood, reset),
		cmocka_unit_test_setup(plain_numbers_mean_what_they_did, reset),
		cmocka_unit_test_setup(wrong_units_are_named, reset),
		cmocka_unit_test_setup(the_environment_lies_between, reset),
		cmocka_unit_test_setup(other_commands_keys_are_passed_over, reset),
		cmocka_unit_test_setup(one_place_replaces_another, reset),
		cmocka_unit_test_setup(a_default_file_gives_its_keys_only, reset),
		cmocka_unit_test_setup_teardown(help_is_recognised_anywhere, reset, reset),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
