// SPDX-License-Identifier: Apache-2.0
/* Rows as JSON lines: every kind of column, parsed by jansson. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "pipeline/json.h"
#include "base/clock.h"

struct sample {
	uint8_t u8, enumeration;
	uint16_t u16;
	uint32_t u32;
	uint64_t u64, time_ns;
	struct column_maybe_u64 known, unknown;
	int8_t s8;
	float f32;
	char chars[8];
	const char *string;
	struct column_strings strings;
	uint8_t ip[16];
};

static const char *const names[] = { "zero", "one" };
static const struct column columns[] = {
	COLUMN(COLUMN_U8, struct sample, u8, "u8", "UInt8"),
	COLUMN_NAMED(struct sample, enumeration, "enumeration", names),
	COLUMN(COLUMN_U16, struct sample, u16, "u16", "UInt16"),
	COLUMN(COLUMN_U32, struct sample, u32, "u32", "UInt32"),
	COLUMN(COLUMN_U64, struct sample, u64, "u64", "UInt64"),
	COLUMN(COLUMN_MAYBE_U64, struct sample, known, "known", "Nullable(UInt64)"),
	COLUMN(COLUMN_MAYBE_U64, struct sample, unknown, "unknown", "Nullable(UInt64)"),
	COLUMN(COLUMN_S8, struct sample, s8, "s8", "Int8"),
	COLUMN(COLUMN_F32, struct sample, f32, "f32", "Float32"),
	COLUMN(COLUMN_CHARS, struct sample, chars, "chars", "String"),
	COLUMN(COLUMN_STRING, struct sample, string, "string", "String"),
	COLUMN(COLUMN_STRINGS, struct sample, strings, "strings", "Array(String)"),
	COLUMN(COLUMN_IP, struct sample, ip, "ip", "IPv6"),
	COLUMN(COLUMN_TIME, struct sample, time_ns, "time", "DateTime64(6, 'UTC')"),
};
static const struct table table = { "t", { columns }, { sizeof(columns) / sizeof(columns[0]) } };

static json_t *encode(const struct sample *row, bool with_table)
{
	struct buffer b = { 0 };
	json_error_t error;
	json_t *parsed;

	assert_int_equal(json_append_row(&b, &table, row, with_table), 0);
	assert_int_equal(b.data[b.len - 1], '\n');
	assert_null(memchr(b.data, '\n', b.len - 1));
	parsed = json_loadb(b.data, b.len, 0, &error);
	if (!parsed)
		fail_msg("%s in %.*s", error.text, (int)b.len, b.data);
	buffer_free(&b);
	return parsed;
}

static const char *text(json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static void every_kind_of_column_arrives(void **state)
{
	static const char *const stack[] = { "a", "b\"c" };
	struct sample row = {
		.u8 = 255,
		.enumeration = 1,
		.u16 = 65535,
		.u32 = UINT32_MAX,
		.u64 = INT64_MAX,
		.known = { .value = 0, .known = true },
		.unknown = { .value = 7 },
		.s8 = -1,
		.f32 = 2.5f,
		.chars = "12345678", /* full: no NUL */
		.string = "text",
		.strings = { stack, 2 },
		.ip = { [10] = 0xff, 0xff, 127, 0, 0, 1 },
		.time_ns = 1000,
	};
	json_t *o = encode(&row, false);

	(void)state;
	assert_int_equal(json_object_size(o), sizeof(columns) / sizeof(columns[0]));
	assert_int_equal(json_integer_value(json_object_get(o, "u8")), 255);
	assert_string_equal(text(o, "enumeration"), "one");
	assert_int_equal(json_integer_value(json_object_get(o, "u16")), 65535);
	assert_int_equal(json_integer_value(json_object_get(o, "u32")), UINT32_MAX);
	assert_int_equal(json_integer_value(json_object_get(o, "u64")), INT64_MAX);
	assert_true(json_is_integer(json_object_get(o, "known")));
	assert_int_equal(json_integer_value(json_object_get(o, "known")), 0);
	assert_true(json_is_null(json_object_get(o, "unknown")));
	assert_int_equal(json_integer_value(json_object_get(o, "s8")), -1);
	assert_true(json_real_value(json_object_get(o, "f32")) == 2.5);
	assert_string_equal(text(o, "chars"), "12345678");
	assert_string_equal(text(o, "string"), "text");
	assert_string_equal(json_string_value(json_array_get(json_object_get(o, "strings"), 1)),
			    "b\"c");
	assert_string_equal(text(o, "ip"), "::ffff:127.0.0.1");
	assert_int_equal(json_integer_value(json_object_get(o, "time")), clock_wall_us(1000));
	json_decref(o);
}

static void stdout_rows_begin_with_their_table(void **state)
{
	struct sample row = { 0 };
	json_t *o = encode(&row, true);

	(void)state;
	assert_string_equal(json_object_iter_key(json_object_iter(o)), "table");
	assert_string_equal(text(o, "table"), "t");
	assert_string_equal(text(o, "string"), "");
	json_decref(o);
}

static void hostile_text_stays_valid_json(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "quote\" back\\slash", "quote\" back\\slash" },
		{ "line\nfeed\ttab\x01", "line\nfeed\ttab\x01" },
		{ "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8d",
		  "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8d" },
		{ "\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd" },		    /* invalid UTF-8 */
		{ "cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd" },	    /* ends too early */
		{ "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },		    /* overlong '/' */
		{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* surrogate */
		{ "\xf5\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sample row = { .string = cases[i].in };
		json_t *o = encode(&row, false);

		assert_string_equal(text(o, "string"), cases[i].out);
		json_decref(o);
	}
}

/* Equal after parsing, without terminal controls in the JSON. */
static void controls_beyond_ascii_are_escaped(void **state)
{
	static const char *const controls[] = { "\x7f",	       "\xc2\x80",     "\xc2\x9b",
						"\xc2\x9f",    "\xe2\x80\xa8", "\xe2\x80\xae",
						"\xef\xbf\xbf" };

	(void)state;
	for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++) {
		struct sample row = { .string = controls[i] };
		struct buffer b = { 0 };
		json_t *o = encode(&row, false);

		assert_string_equal(text(o, "string"), controls[i]);
		json_decref(o);
		assert_int_equal(json_append_row(&b, &table, &row, false), 0);
		assert_null(memmem(b.data, b.len, controls[i], strlen(controls[i])));
		buffer_free(&b);
	}
}

static void every_byte_sequence_of_two_stays_valid_json(void **state)
{
	(void)state;
	for (unsigned int i = 1; i < 65536; i++) {
		char two[3] = { (char)(i >> 8), (char)i, 0 };
		struct sample row = { .string = two };
		struct buffer b = { 0 };
		json_t *o;

		if (!two[0] || !two[1])
			continue;
		assert_int_equal(json_append_row(&b, &table, &row, false), 0);
		o = json_loadb(b.data, b.len, 0, NULL);
		assert_non_null(o);
		json_decref(o);
		buffer_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_column_arrives),
		cmocka_unit_test(stdout_rows_begin_with_their_table),
		cmocka_unit_test(hostile_text_stays_valid_json),
		cmocka_unit_test(controls_beyond_ascii_are_escaped),
		cmocka_unit_test(every_byte_sequence_of_two_stays_valid_json),
	};

	clock_calibrate();
	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
