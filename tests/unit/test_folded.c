// SPDX-License-Identifier: Apache-2.0
/* Folded stacks: writing and reading, drawing, and sums of off_cpu's rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "commands/offcpu/flamegraph.h"
#include "commands/offcpu/folded.h"
#include "commands/offcpu/stacks.h"
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

/* ---- rows ---- */

struct row {
	uint32_t host_pid, host_tid, waker_host_tid;
	float weight;
	uint8_t idle;
	uint64_t duration_ns, off_ns;
	const char *comm, *thread_name, *state, *cause, *syscall, *waker_comm, *waker_thread_name;
	struct column_strings kernel_stack, user_stack, py_stack, waker_stack;
};

#define COL(kind, name) COLUMN(kind, struct row, name, #name, "")
static const struct column columns[] = {
	COL(COLUMN_U32, host_pid),
	COL(COLUMN_U32, host_tid),
	COL(COLUMN_U32, waker_host_tid),
	COL(COLUMN_F32, weight),
	COL(COLUMN_U8, idle),
	COL(COLUMN_U64, duration_ns),
	COL(COLUMN_STRING, comm),
	COL(COLUMN_STRING, thread_name),
	COL(COLUMN_STRING, state),
	COL(COLUMN_STRING, cause),
	COL(COLUMN_STRING, syscall),
	COL(COLUMN_STRING, waker_comm),
	COL(COLUMN_STRING, waker_thread_name),
	COL(COLUMN_STRINGS, kernel_stack),
	COL(COLUMN_STRINGS, user_stack),
	COL(COLUMN_STRINGS, py_stack),
	COL(COLUMN_STRINGS, waker_stack),
	COL(COLUMN_U64, off_ns),
};
static const struct table rows = { "ebpf_off_cpu", { columns }, { ARRAY_SIZE(columns) - 1 } };
static const struct table sums = { "ebpf_off_cpu_profile", { columns }, { ARRAY_SIZE(columns) } };

#define STRINGS(...)                                                                               \
	{ (const char *const[]){ __VA_ARGS__ },                                                    \
	  sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *) }

static struct row a_row(uint64_t ns)
{
	static const char *const kernel[] = { "futex_wait", "do_syscall_64" };
	static const char *const user[] = { "sem_wait", "main" };

	return (struct row){ .host_pid = 7,
			     .host_tid = 8,
			     .weight = 1,
			     .duration_ns = ns,
			     .off_ns = ns,
			     .comm = "python3",
			     .thread_name = "worker",
			     .state = "S",
			     .cause = "lock",
			     .syscall = "futex",
			     .kernel_stack = { kernel, 2 },
			     .user_stack = { user, 2 } };
}

static uint64_t value_of(const struct folded *folded, const char *text)
{
	struct folded_stack *stack;

	HASH_FIND_STR(folded->stacks, text, stack);
	return stack ? stack->value : 0;
}

#define NATIVE "worker;main;sem_wait;do_syscall_64;futex_wait;futex [lock]"

static void sums_make_up_for_what_is_no_row(void **state)
{
	struct row row = a_row(5000000), sum = a_row(7000000), preempted = a_row(900000);
	struct row other = a_row(333000);
	struct folded folded = { 0 };

	(void)state;
	row.py_stack = (struct column_strings)STRINGS("get (q.py:5)", "run (t.py:1)");
	row.idle = 1; /* from the Python stack, absent in sums */
	preempted.state = "R";
	preempted.cause = "preempt";
	preempted.syscall = "";
	other.user_stack = (struct column_strings)STRINGS("pthread_cond_wait", "main");
	offcpu_stacks_init(false);
	offcpu_stacks_row(&rows, &row);
	offcpu_stacks_row(&sums, &sum);
	offcpu_stacks_row(&sums, &preempted);
	offcpu_stacks_row(&sums, &other);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(value_of(&folded, "worker;run (t.py:1);get (q.py:5);futex [lock, idle]"),
			 5000);
	assert_int_equal(value_of(&folded, NATIVE), 2000);
	assert_int_equal(value_of(&folded, "worker;[preempt]"), 900);
	assert_int_equal(value_of(&folded, "worker;main;pthread_cond_wait;do_syscall_64;futex_wait;"
					   "futex [lock]"),
			 333);
	assert_int_equal(folded_total(&folded), offcpu_stacks_total_ns() / 1000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void names_that_become_known_double_nothing(void **state)
{
	struct row row = a_row(5000000), sum = a_row(5100000);
	struct folded folded = { 0 };

	(void)state;
	/* the function's name was unknown for the row */
	row.user_stack = (struct column_strings)STRINGS("[libc.so.6]", "main");
	offcpu_stacks_init(false);
	offcpu_stacks_row(&rows, &row);
	offcpu_stacks_row(&sums, &sum);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), 5100);
	assert_int_equal(value_of(&folded, NATIVE), 100);
	folded_free(&folded);
	/* rows may precede the sums */
	offcpu_stacks_row(&rows, &row);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), 10000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void what_found_no_room_counts_once(void **state)
{
	struct row row = a_row(5000000), sum = a_row(1000000), rest = a_row(6000000);
	struct folded folded = { 0 };

	(void)state;
	rest.host_pid = rest.host_tid = 0;
	offcpu_stacks_init(false);
	offcpu_stacks_row(&rows, &row);
	offcpu_stacks_row(&sums, &sum);
	offcpu_stacks_row(&sums, &rest);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), 7000);
	assert_int_equal(value_of(&folded, "[found no room in the kernel];[lock]"), 2000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void wakers_lie_on_top(void **state)
{
	struct row row = a_row(5000000);
	struct folded folded = { 0 };

	(void)state;
	row.waker_host_tid = 9;
	row.waker_comm = "python3";
	row.waker_thread_name = "other";
	row.waker_stack = (struct column_strings)STRINGS("sem_post", "give");
	offcpu_stacks_init(true);
	offcpu_stacks_row(&rows, &row);
	row.waker_host_tid = 0;
	offcpu_stacks_row(&rows, &row);
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(value_of(&folded, NATIVE ";--;sem_post;give;other"), 5000);
	assert_int_equal(value_of(&folded, NATIVE ";--;[no thread: a timer or a device]"), 5000);
	folded_free(&folded);
	offcpu_stacks_free();
}

static void there_is_an_end_to_threads(void **state)
{
	struct folded folded = { 0 };
	char name[32];
	uint64_t us = 0;

	(void)state;
	offcpu_stacks_init(false);
	for (uint32_t tid = 1; tid <= 120000; tid++) {
		struct row row = a_row(5000), sum = a_row(7000);

		snprintf(name, sizeof(name), "Thread-%u", tid);
		row.host_tid = sum.host_tid = tid;
		row.thread_name = sum.thread_name = name;
		offcpu_stacks_row(&rows, &row);
		offcpu_stacks_row(&sums, &sum);
		us += 7;
	}
	assert_false(offcpu_stacks_failed());
	assert_int_equal(offcpu_stacks_fold(&folded), 0);
	assert_int_equal(folded_total(&folded), us);
	assert_true(HASH_COUNT(folded.stacks) <= 50002);
	assert_true(value_of(&folded, "[too many different stacks]") >= 5 * 70000);
	assert_int_equal(offcpu_stacks_waited_ns(5), 7000);
	assert_true(offcpu_stacks_waited_ns(119999) > NSEC_PER_SEC);
	folded_free(&folded);
	offcpu_stacks_free();
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
		cmocka_unit_test(sums_make_up_for_what_is_no_row),
		cmocka_unit_test(names_that_become_known_double_nothing),
		cmocka_unit_test(what_found_no_room_counts_once),
		cmocka_unit_test(wakers_lie_on_top),
		cmocka_unit_test(there_is_an_end_to_threads),
	};

	return cmocka_run_group_tests_name("folded", tests, NULL, NULL);
}
