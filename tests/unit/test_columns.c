// SPDX-License-Identifier: Apache-2.0
/*
 * Column tables in C against the DDL in sql/tables/: equal names, types and order, every table on
 * both sides.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "agent/agent_tables.h"
#include "clickhouse/sql_files.h"
#include "trackers/tracker.h"

static const char *ddl_of(const char *table)
{
	char path[128];

	snprintf(path, sizeof(path), "tables/%s.sql", table);
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	fail_msg("there is no sql/%s", path);
	return NULL;
}

/*
 * The next stored column of the DDL as "name Type": a line indented by four, without codecs and
 * defaults; skips comments, indexes and ALIAS columns. Returns the next position, NULL after the
 * last column.
 */
static const char *next_column(const char *at, char *ret, size_t size)
{
	static const char *const ends[] = { " CODEC(", " DEFAULT ", " COMMENT " };

	while (*at && *at != ')') {
		const char *line = at;
		size_t len = strcspn(line, "\n");

		at = line + len + (line[len] == '\n');
		snprintf(ret, size, "%.*s", (int)len, line);
		if (strncmp(ret, "    ", 4) || strstr(ret, " ALIAS ") ||
		    !strncmp(ret, "    -- ", 7) || !strncmp(ret, "    INDEX ", 10))
			continue;
		memmove(ret, ret + 4, strlen(ret + 4) + 1);
		for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
			if (strstr(ret, ends[i]))
				*strstr(ret, ends[i]) = 0;
		}
		if (ret[strlen(ret) - 1] == ',')
			ret[strlen(ret) - 1] = 0;
		return at;
	}
	return NULL;
}

static void compare(const struct table *table)
{
	const char *at = strstr(ddl_of(table->name), "\n(\n");
	char in_sql[256], in_c[256];

	assert_non_null(at);
	at += 3;
	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; i < table->n_columns[part]; i++) {
			const struct column *c = &table->columns[part][i];

			at = next_column(at, in_sql, sizeof(in_sql));
			if (!at)
				fail_msg("sql/tables/%s.sql ends before %s", table->name, c->name);
			snprintf(in_c, sizeof(in_c), "%s %s", c->name, c->type);
			if (strcmp(in_c, in_sql))
				fail_msg("%s: '%s' in C, '%s' in SQL", table->name, in_c, in_sql);
		}
	}
	if (next_column(at, in_sql, sizeof(in_sql)))
		fail_msg("%s: '%s' stands in the SQL only", table->name, in_sql);
}

static void columns_agree_with_the_ddl(void **state)
{
	(void)state;
	for (size_t i = 0; all_trackers[i]; i++) {
		compare(&all_trackers[i]->table);
		if (all_trackers[i]->second_table)
			compare(all_trackers[i]->second_table);
	}
	compare(&agent_table);
	compare(&probe_health_table);
}

static bool is_ddl_of(const char *path, const struct table *table)
{
	char wanted[128];

	snprintf(wanted, sizeof(wanted), "tables/%s.sql", table->name);
	return !strcmp(path, wanted);
}

static void every_ddl_has_a_table(void **state)
{
	(void)state;
	for (const struct sql_file *f = sql_files; f->path; f++) {
		bool known = is_ddl_of(f->path, &agent_table) ||
			     is_ddl_of(f->path, &probe_health_table);

		if (strncmp(f->path, "tables/", 7))
			continue;
		for (size_t i = 0; all_trackers[i]; i++) {
			known = known || is_ddl_of(f->path, &all_trackers[i]->table) ||
				(all_trackers[i]->second_table &&
				 is_ddl_of(f->path, all_trackers[i]->second_table));
		}
		if (!known)
			fail_msg("no tracker writes to sql/%s", f->path);
	}
}

/* Each column has a comment in system.columns. */
static void every_column_has_a_comment(void **state)
{
	(void)state;
	for (const struct sql_file *f = sql_files; f->path; f++) {
		const char *at = strncmp(f->path, "tables/", 7) ? NULL : strstr(f->text, "\n(\n");

		for (at = at ? at + 3 : ""; *at && *at != ')'; at = strchr(at, '\n') + 1) {
			int len = (int)strcspn(at, "\n");
			const char *comment = memmem(at, (size_t)len, " COMMENT '", 10);

			if (strncmp(at, "    --", 6) && strncmp(at, "    INDEX ", 10) && !comment)
				fail_msg("sql/%s: no line in sql/comments.txt says what the column "
					 "is:%.*s",
					 f->path, len, at);
			if (comment && memmem(at + 6, (size_t)len - 6, "--", 2))
				fail_msg("sql/%s: -- begins a comment of SQL:%.*s", f->path, len,
					 at);
		}
	}
}

/* The size read for a kind must be the size of the member. */
static void columns_fit_their_members(void **state)
{
	static const size_t sizes[] = {
		[COLUMN_U8] = 1,
		[COLUMN_U16] = 2,
		[COLUMN_U32] = 4,
		[COLUMN_U64] = 8,
		[COLUMN_MAYBE_U64] = sizeof(struct column_maybe_u64),
		[COLUMN_S8] = 1,
		[COLUMN_F32] = 4,
		[COLUMN_ENUM] = 1,
		[COLUMN_IP] = 16,
		[COLUMN_TIME] = 8,
		[COLUMN_STRING] = sizeof(char *),
		[COLUMN_STRINGS] = sizeof(struct column_strings),
		[COLUMN_NUMBERS] = sizeof(struct column_numbers),
		[COLUMN_PAIRS] = sizeof(struct column_pairs),
	};

	(void)state;
	for (size_t t = 0; all_trackers[t]; t++) {
		const struct table *table = &all_trackers[t]->table;

		assert_true(all_trackers[t]->row_size <= TRACKER_ROW_MAX);
		for (size_t part = 0; part < 2; part++) {
			for (size_t i = 0; i < table->n_columns[part]; i++) {
				const struct column *c = &table->columns[part][i];

				if (c->kind != COLUMN_CHARS)
					assert_int_equal(c->size, sizes[c->kind]);
				assert_true(c->offset + c->size <= all_trackers[t]->row_size);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_agree_with_the_ddl),
		cmocka_unit_test(every_ddl_has_a_table),
		cmocka_unit_test(every_column_has_a_comment),
		cmocka_unit_test(columns_fit_their_members),
	};

	return cmocka_run_group_tests_name("columns", tests, NULL, NULL);
}
