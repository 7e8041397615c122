// SPDX-License-Identifier: Apache-2.0
/* Questions of `underspan explain`. See ask.h. */
#include "commands/explain/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clickhouse/exceptions.h"
#include "clickhouse/rows.h"
#include "clickhouse/sql_files.h"
#include "commands/explain/timeline.h"
#include "base/log.h"

const char *explain_sql_file(const char *path)
{
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	return NULL; /* impossible: a test checks every file */
}

int explain_view_question(const char *path, const char **ret_text)
{
	static const char as[] = " AS\nWITH\n";
	const char *text = strstr(explain_sql_file(path), as), *end;

	text += strlen(" AS\n");
	end = strrchr(text, ';');
	*ret_text = text;
	return (int)(end - text);
}

void explain_enable_conditions(char *sql)
{
	static const char only_explain[] = "--explain: ";

	for (char *c = sql; (c = strstr(c, only_explain));)
		memset(c, ' ', strlen(only_explain));
}

void explain_keep_hours(const char *trace_id, const char *what, int64_t around_us,
			int64_t *first_us, int64_t *last_us)
{
	enum { HOURS = 6, ROUNDED_US = 2 * US_PER_SEC };
	static const int64_t within_us = HOURS * 3600LL * US_PER_SEC;
	int64_t all_us = *last_us - *first_us;
	bool whole = around_us - *first_us <= within_us + ROUNDED_US &&
		     *last_us - around_us <= within_us + ROUNDED_US;

	if (whole)
		return;
	if (*trace_id)
		log_warn("trace %s has %s of %.1f hours: those of the last %d are shown", trace_id,
			 what, (double)all_us / US_PER_SEC / 3600, HOURS);
	if (*first_us < around_us - within_us)
		*first_us = around_us - within_us;
	if (*last_us > around_us + within_us)
		*last_us = around_us + within_us;
}

char *explain_numbers(const json_t *rows, const char *column, const char *kind)
{
	const json_t *row;
	char *text = NULL;
	size_t i, size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("[0", out);
	json_array_foreach (rows, i, row) {
		if (!kind || !strcmp(explain_text(row, "kind"), kind))
			fprintf(out, ",%lld", (long long)explain_number(row, column));
	}
	fputc(']', out);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

/* Tables of an older version are told; what explain can do without is NO_SUCH_TABLE. */
static int missing(int err, const struct clickhouse_reply *reply, struct why *why)
{
	if (err && reply->exception_code == EXCEPTION_UNKNOWN_IDENTIFIER)
		return why_fail(why, ENOENT,
				"a table here is of an older version: run 'underspan schema "
				"--apply' (%.120s)",
				reply->message);
	if (err && (reply->exception_code == EXCEPTION_UNKNOWN_TABLE ||
		    reply->exception_code == EXCEPTION_UNKNOWN_FUNCTION))
		return NO_SUCH_TABLE;
	return err;
}

int explain_ask_text(struct clickhouse_client *client, const char *sql,
		     const struct clickhouse_param *params, json_t **ret_rows, struct why *why)
{
	struct clickhouse_reply reply;
	int err = clickhouse_query_rows(client, sql, "JSON", params, ret_rows, &reply, why);

	return missing(err, &reply, why);
}

int explain_ask_raw(struct clickhouse_client *client, const char *sql, const char *format,
		    const struct clickhouse_param *params, char **ret_text, size_t *ret_len,
		    struct why *why)
{
	struct clickhouse_reply reply;
	int err = clickhouse_query_text(client, sql, format, params, ret_text, ret_len, &reply,
					why);

	return missing(err, &reply, why);
}

int explain_ask(struct clickhouse_client *client, const char *path,
		const struct clickhouse_param *params, json_t **ret_rows, struct why *why)
{
	return explain_ask_text(client, explain_sql_file(path), params, ret_rows, why);
}

int explain_attach(struct clickhouse_client *client, json_t *into, const json_t *of,
		   const char *key, const char *question, int64_t from_us, int64_t to_us,
		   struct why *why)
{
	char pid[16], tid[16], host_pid[16], peer_port[16], server_port[16], netns[16], from[24],
		to[24];
	const struct clickhouse_param params[] = {
		{ "param_pid", pid },
		{ "param_tid", tid },
		{ "param_host_pid", host_pid },
		{ "param_host", explain_text(of, "host") },
		{ "param_container_id", explain_text(of, "container_id") },
		{ "param_request_id", explain_text(of, "request_id") },
		{ "param_peer_ip", explain_text(of, "peer_ip") },
		{ "param_peer_port", peer_port },
		{ "param_server_port", server_port },
		{ "param_netns", netns },
		{ "param_from_us", from },
		{ "param_to_us", to },
		{ 0 }
	};
	json_t *rows = NULL;
	int err;

	snprintf(pid, sizeof(pid), "%lld", (long long)explain_number(of, "pid"));
	snprintf(tid, sizeof(tid), "%lld", (long long)explain_number(of, "tid"));
	snprintf(host_pid, sizeof(host_pid), "%lld", (long long)explain_number(of, "host_pid"));
	snprintf(peer_port, sizeof(peer_port), "%lld", (long long)explain_number(of, "peer_port"));
	snprintf(server_port, sizeof(server_port), "%lld",
		 (long long)explain_number(of, "server_port"));
	snprintf(netns, sizeof(netns), "%lld", (long long)explain_number(of, "netns"));
	snprintf(from, sizeof(from), "%lld", (long long)from_us);
	snprintf(to, sizeof(to), "%lld", (long long)to_us);
	err = explain_ask(client, question, params, &rows, why);
	if (!err)
		json_object_set(into, key, rows);
	json_decref(rows);
	return err == NO_SUCH_TABLE ? 0 : err;
}
