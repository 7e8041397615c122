/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a window of a database (window.h), by the queries of sql/top/. */
#ifndef UNDERSPAN_COMMANDS_TOP_STORED_H
#define UNDERSPAN_COMMANDS_TOP_STORED_H

#include <jansson.h>

#include "base/config.h"
#include "commands/top/sums.h"

/*
 * All times are in `all`; sources that did not measure for nearly all of the time are in
 * `all_lacks`, CPU times always. *ret_report, released by the caller also after an error: as of
 * offcpu_stored(). -ENODATA: nothing was measured; -EINVAL: rows of several hosts.
 */
int top_stored(const struct pid_list *pids, struct top_sums *ret, json_t **ret_report,
	       struct why *why);

/* After top_stored(): whether GIL waits of a process were measured. */
bool top_stored_measured(uint32_t host_pid);

void top_stored_free(void);

#endif
