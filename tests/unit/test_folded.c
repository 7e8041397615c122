// SPDX-License-Identifier: Apache-2.0
/* Folded stacks: writing, reading and drawing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "commands/offcpu/flamegraph.h"
#include "commands/offcpu/folded.h"
#include "commands/offcpu/table.h"
#include "base/text.h"

static int parse(struct folded *folded, const char *text, struct why *why)
{
	return folded_parse(folded, text, strlen(text), "before", why);
}

static uint64_t before_of(const struct folded *folded, const char *text)
{
	struct folded_stack *stack;

	HASH_FIND_STR(folded->stacks, text, stack);
	return stack ? stack->before : UINT64_MAX;
}

static void lines_are_read(void **state)
{
	struct folded folded = { 0 };
	struct why why;

	(void)state;
	assert_int_equal(parse(&folded,
			       "a;b (x.py:3);c 12\r\n\na 1\na;b (x.py:3);c 30\n"
			       "with spaces 3 in it 4\nno newline;at the end 999999999999999999",
			       &why),
			 0);
	assert_int_equal(before_of(&folded, "a;b (x.py:3);c"), 42);
	assert_int_equal(before_of(&folded, "a"), 1);
	assert_int_equal(before_of(&folded, "with spaces 3 in it"), 4);
	assert_int_equal(before_of(&folded, "no newline;at the end"), 999999999999999999);
	assert_int_equal(HASH_COUNT(folded.stacks), 4);
	folded_free(&folded);
	assert_int_equal(parse(&folded, "", &why), 0);
	assert_null(folded.stacks);
}

static void what_is_no_line_is_refused(void **state)
{
	static const char *const bad[] = {
		"a",
		"a 1.5",
		"a 1 ",
		"a -1",
		"17",
		" 17",
		"a\t1",
		";a 1",
		"a\x1b 1",
		"<svg>",
		"a b",
		"a1",
		"a 1234567890123456789",
		"x 1\ny",
		"x 1\n\n 1",
	};
	char long_line[3000];
	struct why why;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct folded folded = { 0 };

		why.text[0] = 0;
		assert_int_equal(parse(&folded, bad[i], &why), -EINVAL);
		assert_non_null(strstr(why.text, i < 13	   ? "before:1: "
						 : i == 13 ? "before:2: "
							   : "before:3: "));
		folded_free(&folded);
	}
	memset(long_line, ';', sizeof(long_line));
	memcpy(long_line, "a;b", 3);
	strcpy(long_line + sizeof(long_line) - 4, "c 1");
	struct folded folded = { 0 };
	assert_int_equal(parse(&folded, long_line, &why), -EINVAL);
	assert_int_equal(folded_parse(&folded, "a\0b 1", 5, "before", &why), -EINVAL);
	/* the total must not overflow */
	for (int i = 0; i < 18; i++)
		assert_int_equal(parse(&folded, "a 999999999999999999", &why), 0);
	char many[40 * 21] = "";
	for (int i = 0; i < 20; i++)
		strcat(many, "a 999999999999999999\n");
	assert_int_equal(parse(&folded, many, &why), -EINVAL);
	assert_non_null(strstr(why.text, "before:19: "));
	folded_free(&folded);
}

static void frames_cannot_leave_their_place(void **state)
{
	struct buffer text = { 0 };

	(void)state;
	assert_int_equal(folded_frame(&text, "a;b\nc 5"), 0);
	assert_int_equal(folded_frame(&text, ""), 0);
	assert_int_equal(folded_frame(&text, "\xff\xc2\x9b\xe2\x80\xae gr\xc3\xb6\xc3\x9f\x65\xe2"),
			 0);
	assert_int_equal(buffer_append(&text, "", 1), 0);
	assert_string_equal(text.data, "a:b?c 5;?;??? gr\xc3\xb6\xc3\x9f\x65?");
	buffer_free(&text);
}

static void short_frames_have_the_file_s_name(void **state)
{
	static const char *const frames[][2] = {
		{ "run (/usr/lib/threading.py:982)", "run (threading.py:982)" },
		{ "run (threading.py:982)", "run (threading.py:982)" },
		{ "a/b", "a/b" },
		{ "operator/ (int)", "operator/ (int)" },
		{ "f (/a/)", "f ()" },
		{ "", "" },
	};
	char buf[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
		assert_string_equal(
			folded_short_frame(frames[i][0], strlen(frames[i][0]), buf, sizeof(buf)),
			frames[i][1]);
}

static void add(struct folded *folded, const char *text, uint64_t ns)
{
	folded_get(folded, text, strlen(text))->ns += ns;
}

static void microseconds_add_up(void **state)
{
	struct folded folded = { 0 };
	uint64_t ns = 0;
	char text[32];

	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "t;%llu", (unsigned long long)(i * 7919 % 1000));
		add(&folded, text, i * 997 % 5000);
		ns += i * 997 % 5000;
	}
	folded_round(&folded);
	assert_int_equal(folded_total(&folded), ns / 1000);
	for (struct folded_stack *s = folded.stacks; s; s = s->hh.next)
		assert_true(s->value * 1000 < s->ns + 1000 && s->ns < (s->value + 1) * 1000);
	folded_free(&folded);
}

static void equal_roots_are_neighbours(void **state)
{
	(void)state;
	assert_true(folded_compare_texts("a", "a;b") < 0);
	assert_true(folded_compare_texts("a;b", "a b") < 0);
	assert_true(folded_compare_texts("a;z", "a!;b") < 0);
	assert_true(folded_compare_texts("a", "a") == 0);
	assert_true(folded_compare_texts("b", "a;b") > 0);
	assert_true(folded_compare_texts("\xc3\xa4", "z") > 0);
}

/* ---- flame graphs ---- */

/* Elements are closed in order; texts contain no markup and no invalid XML. */
static void check_svg(const char *svg)
{
	const char *open[8];
	size_t depth = 0, left = strlen(svg);

	for (const char *c = svg; *c;) {
		size_t n = utf8_sequence((const unsigned char *)c, left - (size_t)(c - svg));

		assert_true(n > 0);
		assert_true(n > 1 || *c == '\n' || (unsigned char)*c >= 0x20);
		if (*c == '&') {
			assert_true(!strncmp(c, "&lt;", 4) || !strncmp(c, "&gt;", 4) ||
				    !strncmp(c, "&amp;", 5) || !strncmp(c, "&quot;", 6));
		} else if (!strncmp(c, "</", 2)) {
			size_t len = strcspn(c + 2, ">");

			assert_true(depth-- > 0);
			assert_int_equal(strncmp(c + 2, open[depth], len), 0);
		} else if (*c == '<' && c[1] != '?') {
			const char *end = strchr(c, '>');

			assert_non_null(end);
			assert_true(depth < ARRAY_SIZE(open));
			if (end[-1] != '/')
				open[depth++] = c + 1;
			n = (size_t)(end - c);
		}
		c += n;
	}
	assert_int_equal(depth, 0);
}

static char *draw(struct folded *folded, bool diff)
{
	char *svg = NULL;
	size_t size;
	FILE *out = open_memstream(&svg, &size);

	assert_int_equal(flamegraph_write(folded, diff, "<title> & \"co\"\x01", "\xff", out), 0);
	fclose(out);
	check_svg(svg);
	return svg;
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

static void a_frame_is_drawn_once_and_as_wide_as_its_time(void **state)
{
	struct folded folded = { 0 };
	char *svg;

	(void)state;
	add(&folded, "t;a;b", 500000);
	add(&folded, "t;a;c", 250000);
	add(&folded, "t;a b", 240000);
	add(&folded, "t;a", 10000);
	folded_round(&folded);
	svg = draw(&folded, false);
	assert_non_null(strstr(svg,
			       "<title>t (1.000 ms, 100.00%)</title><rect x=\"10.00\" y=\"90\" "
			       "width=\"1180.00\""));
	assert_non_null(strstr(svg, "<title>a (0.760 ms, 76.00%)</title><rect x=\"10.00\" y=\"73\" "
				    "width=\"896.80\""));
	assert_non_null(strstr(svg, "<title>a b (0.240 ms, 24.00%)"));
	assert_int_equal(count(svg, "<g>"), 5);
	free(svg);
	folded_free(&folded);
}

static void differences_have_colours(void **state)
{
	struct folded folded = { 0 };
	struct why why;
	char *svg;

	(void)state;
	add(&folded, "t;more", 900000);
	add(&folded, "t;equal", 100000);
	add(&folded, "t;less", 100000);
	assert_int_equal(parse(&folded, "t;equal 100\nt;less 900\nt;gone 500\n", &why), 0);
	folded_round(&folded);
	svg = draw(&folded, true);
	assert_non_null(strstr(svg, "more (0.900 ms, 81.82%; before 0.000 ms, +0.900 ms)"));
	assert_non_null(strstr(svg, "t (1.100 ms, 100.00%; before 1.500 ms, -0.400 ms)"));
	assert_null(strstr(svg, "gone"));
	assert_non_null(strstr(svg, "fill=\"#f55a5a\"")); /* all new */
	assert_non_null(strstr(svg, "fill=\"#f5f5f5\"")); /* unchanged */
	free(svg);
	folded_free(&folded);
}

static void nothing_is_a_picture_too(void **state)
{
	struct folded folded = { 0 };
	struct why why;

	(void)state;
	free(draw(&folded, false));
	assert_int_equal(parse(&folded, "t;gone 500\n", &why), 0);
	free(draw(&folded, true));
	folded_free(&folded);
}

/* Deterministic: failures are reproducible. */
static uint32_t next_random(void)
{
	static uint32_t x = 2463534242;

	x ^= x << 13;
	x ^= x >> 17;
	return x ^= x << 5;
}

static void whatever_is_read_can_be_drawn_and_printed(void **state)
{
	static const char alphabet[] = "ab;;; <>&\"'\xc3\xb6\xe2\x80\xae\xff\x7f()/--;\n  123";

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct folded folded = { 0 };
		struct why why;
		char text[400];
		size_t len = next_random() % sizeof(text);
		FILE *out = fopen("/dev/null", "w");

		for (size_t i = 0; i < len; i++)
			text[i] = alphabet[next_random() % (sizeof(alphabet) - 1)];
		/* most are refused; accepted input and lines before an error are drawn
		 */
		folded_parse(&folded, text, len, "random", &why);
		for (struct folded_stack *s = folded.stacks; s; s = s->hh.next)
			s->ns = next_random();
		folded_round(&folded);
		free(draw(&folded, round & 1));
		offcpu_table(&folded, out);
		offcpu_table_changes(&folded, out);
		offcpu_table_top(&folded, 10, out);
		fclose(out);
		folded_free(&folded);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_read),
		cmocka_unit_test(what_is_no_line_is_refused),
		cmocka_unit_test(frames_cannot_leave_their_place),
		cmocka_unit_test(short_frames_have_the_file_s_name),
		cmocka_unit_test(microseconds_add_up),
		cmocka_unit_test(equal_roots_are_neighbours),
		cmocka_unit_test(a_frame_is_drawn_once_and_as_wide_as_its_time),
		cmocka_unit_test(differences_have_colours),
		cmocka_unit_test(nothing_is_a_picture_too),
		cmocka_unit_test(whatever_is_read_can_be_drawn_and_printed),
	};

	return cmocka_run_group_tests_name("folded", tests, NULL, NULL);
}
