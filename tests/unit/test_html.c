// SPDX-License-Identifier: Apache-2.0
/* HTML reports: hostile texts stay data, and a million stacks stay one small page with exact sums.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commands/offcpu/html.h"
#include "html/page.h"

static char *page_of(const char *title, json_t *body, size_t *ret_size)
{
	char *page = NULL;
	FILE *out = open_memstream(&page, ret_size);

	assert_non_null(out);
	assert_int_equal(html_page_write(out, "offcpu", title, body, NULL), 0);
	fclose(out);
	json_decref(body);
	return page;
}

static unsigned int times(const char *text, const char *what)
{
	unsigned int n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static void test_texts_cannot_end_the_data(void **state)
{
	static const char hostile[] = "</script><script>alert(1)</script><!--&'\"\xe2\x80\xa8";
	size_t size;
	char *page = page_of(hostile, json_pack("{s:s}", hostile, hostile), &size), *data, *end;
	json_t *parsed;

	(void)state;
	assert_int_equal(times(page, "<script"), 2);
	assert_int_equal(times(page, "</script>"), 2);
	assert_null(strstr(page, "<!--"));
	assert_non_null(strstr(page, "<title>&lt;/script&gt;&lt;script&gt;alert(1)"));
	/* and the data is what it was */
	data = strstr(page, "id=\"data\">") + strlen("id=\"data\">");
	end = strstr(data, "</script>");
	parsed = json_loadb(data, (size_t)(end - data), 0, NULL);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(parsed, "body"), hostile)),
		hostile);
	json_decref(parsed);
	free(page);
}

/* Sums of the stacks of a body by their last frame. */
static json_int_t sum_of(const json_t *body, const char *last)
{
	const json_t *frames = json_object_get(body, "frames"), *stack;
	json_int_t sum = 0;
	size_t i;

	json_array_foreach (json_object_get(body, "stacks"), i, stack) {
		const json_t *frame = json_array_get(stack, json_array_size(stack) - 1);

		if (!strcmp(json_string_value(
				    json_array_get(frames, (size_t)json_integer_value(frame))),
			    last))
			sum += json_integer_value(json_array_get(stack, 0));
	}
	return sum;
}

static void test_a_million_stacks(void **state)
{
	enum { STACKS = 1000000 };
	static const char *const causes[] = { "futex [lock]", "poll [poll, idle]" };
	struct folded folded = { 0 };
	json_int_t want[2] = { 0 };
	size_t size;
	char text[200], *page;
	json_t *body;

	(void)state;
	for (unsigned int i = 0; i < STACKS; i++) {
		int n = snprintf(text, sizeof(text), "worker-%u;run (a.py:1);f%u (b.py:%u);%s",
				 i % 50, i, i, causes[i % 2]);
		struct folded_stack *s = folded_get(&folded, text, (size_t)n);

		s->value = 1 + i % 7;
		want[i % 2] += 1 + i % 7;
	}
	body = offcpu_html_body(&folded, false);
	folded_free(&folded);
	assert_int_equal(sum_of(body, causes[0]), want[0]);
	assert_int_equal(sum_of(body, causes[1]), want[1]);
	assert_int_equal(json_integer_value(json_object_get(body, "rest_stacks")) +
				 (json_int_t)json_array_size(json_object_get(body, "stacks")) - 50,
			 STACKS); /* one for the rest of each of 50 threads */
	page = page_of("a million", body, &size);
	assert_in_range(size, 1000000, 2000000);
	free(page);
}

static void test_long_frames_and_many_threads(void **state)
{
	enum { THREADS = 30000, LONG = 60000 };
	struct folded folded = { 0 };
	char *text = malloc(LONG + 64), *page;
	json_int_t want = 0;
	size_t size;
	json_t *body;

	(void)state;
	for (unsigned int i = 0; i < THREADS; i++) {
		int n = snprintf(text, 64, "t%u;", i);
		size_t len = (size_t)n + (i % 100 ? 30 : LONG - 20);

		memset(text + n, 'x', len - (size_t)n);
		n = snprintf(text + len, 32, ";read [net];--;irq");
		folded_get(&folded, text, len + (size_t)n)->value = i;
		want += i;
	}
	free(text);
	body = offcpu_html_body(&folded, false);
	folded_free(&folded);
	assert_int_equal(sum_of(body, "irq") + sum_of(body, "read [net]"), want);
	page = page_of("many", body, &size);
	assert_in_range(size, 1000000, 2000000);
	free(page);
}

/* Letters that are longer in the page, in frames, threads and causes that are all different. */
static void test_letters_that_are_escaped(void **state)
{
	static const char *const letters[] = { "<", "\\", "\xc3\xa9", "\xe2\x82\xac",
					       "\xf0\x9f\x98\x80" };
	enum { STACKS = 20000, TIMES = 200 };

	(void)state;
	for (size_t l = 0; l < sizeof(letters) / sizeof(*letters); l++) {
		struct folded folded = { 0 };
		char long_text[4 * TIMES + 1] = "", text[4 * sizeof(long_text)], *page;
		json_int_t sum = 0;
		const json_t *stack;
		size_t size, k;
		json_t *body;

		for (int i = 0; i < TIMES; i++)
			strcat(long_text, letters[l]);
		for (unsigned int i = 0; i < STACKS; i++) {
			int n = snprintf(text, sizeof(text), "%u%s;f%u%s;%s%u [net]", i, long_text,
					 i, long_text, long_text, i);

			folded_get(&folded, text, (size_t)n)->value = 1000000000 + i;
		}
		body = offcpu_html_body(&folded, false);
		folded_free(&folded);
		json_array_foreach (json_object_get(body, "stacks"), k, stack)
			sum += json_integer_value(json_array_get(stack, 0));
		assert_int_equal(sum, (json_int_t)STACKS * 1000000000 +
					      (json_int_t)STACKS * (STACKS - 1) / 2);
		page = page_of("letters", body, &size);
		assert_in_range(size, 1000000, 2000000);
		free(page);
	}
}

/* Lists are cut by this: it must be what the page grows by, also of long and hostile texts. */
static void test_bytes_of_a_value_are_those_of_the_page(void **state)
{
	char *text = malloc(6001);
	json_t *empty = json_pack("{s:[]}", "rows"), *row;
	size_t without, with, bytes;

	(void)state;
	memset(text, '<', 6000);
	text[6000] = 0;
	free(page_of("x", empty, &without));
	row = json_pack("{s:s, s:f, s:I, s:n, s:[s, s], s:{s:b}}", "path", text, "sum", 0.1, "n",
			(json_int_t)-1234567, "none", "list", "\xc3\xa9\xf0\x9f\x90\x8d", "\x01\"",
			"object", "true", 1);
	bytes = html_page_bytes(row);
	free(page_of("x", json_pack("{s:[o]}", "rows", row), &with));
	assert_in_range(bytes, with - without, with - without + 20);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts_cannot_end_the_data),
		cmocka_unit_test(test_a_million_stacks),
		cmocka_unit_test(test_long_frames_and_many_threads),
		cmocka_unit_test(test_letters_that_are_escaped),
		cmocka_unit_test(test_bytes_of_a_value_are_those_of_the_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
