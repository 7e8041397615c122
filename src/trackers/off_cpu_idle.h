/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idle detection by Python stack, where the system call cannot tell: an idle pool worker sleeps on
 * a lock, like a blocked thread.
 */
#ifndef UNDERSPAN_TRACKERS_OFF_CPU_IDLE_H
#define UNDERSPAN_TRACKERS_OFF_CPU_IDLE_H

#include <stdbool.h>

#include "rows/column.h"

/*
 * Whether a Python stack (innermost first) shows a thread waiting for work:
 * - the loop of a known pool waits, directly or in methods of a queue or condition, or
 * - the thread's target function waits in Queue.get(), Condition.wait() or Event.wait().
 * Lock acquisition, a future's result, join(), queue reads in deeper frames and unknown stacks are
 * not idle.
 */
bool off_cpu_waits_for_work(const struct column_strings *py_stack);

#endif
