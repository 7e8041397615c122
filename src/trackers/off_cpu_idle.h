/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads with nothing to do, told from those that something keeps waiting, where the system call
 * does not say it: a pool's worker sleeps on a lock, as one does that another thread holds up.
 */
#ifndef UNDERSPAN_OFF_CPU_IDLE_H
#define UNDERSPAN_OFF_CPU_IDLE_H

#include <stdbool.h>

#include "pipeline/column.h"

/*
 * Does a Python stack, innermost first, show a thread that waits for work? It does when
 * - the loop of a known pool waits, in itself or by a queue's or condition's methods, or
 * - the function that the thread was started with waits in Queue.get(), Condition.wait() or
 *   Event.wait(): a thread that is there to be given things.
 * A lock that is acquired, a future's result, a join, or a queue that is read further inside are
 * something that takes time. So is whatever is not recognised.
 */
bool off_cpu_waits_for_work(const struct column_strings *py_stack);

#endif
