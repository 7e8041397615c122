/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GIL waits of a window of a database (window.h), optionally with those of a second window. The
 * queries are in sql/gil/.
 */
#ifndef UNDERSPAN_COMMANDS_GIL_STORED_H
#define UNDERSPAN_COMMANDS_GIL_STORED_H

#include <jansson.h>

#include "base/config.h"
#include "commands/gil/totals.h"

/*
 * Durations and counts are those of the sums of all waits (ebpf_gil_wait_profile); holders and
 * lines those of waits with rows (ebpf_gil_wait), without percentiles. Threads of a name are one
 * entry; with several `pids` each process is apart. *ret_report, released by the caller also after
 * an error: as of offcpu_stored(), and "methods". -ENODATA: a window was not measured.
 */
int gil_stored(const struct pid_list *pids, struct gil_totals *ret, json_t **ret_report,
	       struct why *why);

#endif
