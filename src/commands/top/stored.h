/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a window of a database (window.h), or of two, by the queries of sql/top/. */
#ifndef UNDERSPAN_COMMANDS_TOP_STORED_H
#define UNDERSPAN_COMMANDS_TOP_STORED_H

#include <jansson.h>

#include "base/config.h"
#include "commands/top/sums.h"

/*
 * All times are in `all`, CPU times by samples; sources that did not measure for nearly all of the
 * time are in `all_lacks`. *ret_report, released by the caller also after an error: as of
 * offcpu_stored(). -ENODATA: nothing was measured; -EINVAL: rows of several hosts.
 *
 * With --against-since, `ret_before` is of that window; processes are groups (names.h) with the
 * group's number as host_pid; both have the same entries.
 */
int top_stored(const struct pid_list *pids, struct top_sums *ret, struct top_sums *ret_before,
	       json_t **ret_report, struct why *why);

/* After top_stored(): the sources that measured a process, or all of a group; see
 * top_part_is_known(). */
unsigned int top_stored_measured(uint32_t number);
unsigned int top_stored_measured_before(uint32_t number);

/* Processes of a group, in the window and in the one before. */
uint32_t top_stored_processes(uint32_t number);
uint32_t top_stored_processes_before(uint32_t number);

void top_stored_free(void);

#endif
