// SPDX-License-Identifier: Apache-2.0
/* Waits for locks of a window of a database. See locks_stored.h. */
#include "commands/offcpu/locks_stored.h"

#include <stdlib.h>

#include "base/clock.h"
#include "commands/report.h"

enum { FRAMES_MAX = 8 };

/* Rows of an answer: some 500 bytes each at most, mostly; the client's limit is 64 MiB. */
static const char limit[] = "60000";

static void add_wait(struct lock_waits *locks, const json_t *row)
{
	const char *python[FRAMES_MAX], *native[FRAMES_MAX];
	int64_t end_us = (int64_t)report_number(row, "end_us");

	locks_add(locks,
		  &(struct lock_wait){
			  .host = report_text(row, "host"),
			  .boot_id = report_text(row, "boot_id"),
			  .thread = report_text(row, "thread_name"),
			  .waker = report_text(row, "waker_thread_name"),
			  .host_pid = (uint32_t)report_number(row, "host_pid"),
			  .host_tid = (uint32_t)report_number(row, "host_tid"),
			  .waker_host_tid = (uint32_t)report_number(row, "waker_host_tid"),
			  .address = strtoull(report_text(row, "lock"), NULL, 16),
			  .begin_us = (int64_t)report_number(row, "begin_us"),
			  .wake_us = end_us -
				     (int64_t)(report_number(row, "runq_ns") / NSEC_PER_USEC),
			  .end_us = end_us,
			  .weight = report_number(row, "weight"),
			  .idle = report_number(row, "idle") != 0,
			  .thread_named = report_number(row, "thread_named") != 0,
			  .waker_named = report_number(row, "waker_named") != 0,
			  .py_stack = report_strings(row, "py_stack", python, FRAMES_MAX),
			  .user_stack = report_strings(row, "user_stack", native, FRAMES_MAX),
		  });
}

int locks_stored(struct window *window, json_t **ret, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_limit", limit }, { 0 } };
	struct lock_waits locks = { 0 };
	json_t *rows = NULL, *row;
	double read = 0;
	size_t i;
	int err = window_ask(window, "offcpu/lock_waits.sql", params, &rows, why);

	if (err)
		return err;
	json_array_foreach (rows, i, row) {
		add_wait(&locks, row);
		read += report_number(row, "idle") ? 0 : report_number(row, "weight");
	}
	if (json_array_size(rows))
		locks.left_out += report_number(json_array_get(rows, 0), "all_waits") - read;
	*ret = locks_report(&locks);
	json_decref(rows);
	locks_free(&locks);
	return *ret ? 0 : why_fail(why, ENOMEM, "out of memory");
}
