/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of a window of a database (window.h), by the queries of sql/timeline/. */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_STORED_H
#define UNDERSPAN_COMMANDS_TIMELINE_STORED_H

#include "base/config.h"
#include "commands/timeline/slices.h"

/*
 * *ret_report, released by the caller also after an error: from_us, to_us, host, service, pids,
 * measured_s (of the tracker measured longest), notes, against: the same times of the window of
 * --against-since, whose rows are in `ret_before`. -ENODATA: nothing was measured; -EINVAL: rows of
 * several hosts.
 */
int timeline_stored(const struct pid_list *pids, struct timeline *ret, struct timeline *ret_before,
		    json_t **ret_report, struct why *why);

#endif
