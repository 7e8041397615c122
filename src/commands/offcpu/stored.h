/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Off-CPU stacks of a window of a database (window.h), from ebpf_off_cpu_profile, optionally
 * compared with a second window. The queries are in sql/offcpu/.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_STORED_H
#define UNDERSPAN_COMMANDS_OFFCPU_STORED_H

#include <jansson.h>

#include "base/config.h"
#include "commands/offcpu/folded.h"

/*
 * As the options of these names; `cpu`: also stacks of time on a CPU, from ebpf_on_cpu; the report
 * has cpu_us null if that was not measured.
 */
struct offcpu_choice {
	bool wakers, native, cpu;
};

/*
 * Sums of a window cover whole intervals of the table: intervals that ended in the window. Stacks
 * of one thread name are summed over processes; with several `pids` each process is apart. ret:
 * stacks in microseconds, `before`: stacks of the second window. *ret_report, released by the
 * caller also after an error: {from_us, to_us, begin_us, end_us (covered by the intervals),
 * measured_s (sum over hosts), host, service, pids, coverage, notes, against: the same times of the
 * second window}. -ENODATA: a window was not measured.
 */
int offcpu_stored(const struct pid_list *pids, struct offcpu_choice choice, struct folded *ret,
		  json_t **ret_report, struct why *why);

#endif
