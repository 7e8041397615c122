/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the process where the main thread does not come back: it may be held up in a call of
 * the kernel (a lock of control groups, a tracer), while each stop has five seconds.
 */
#ifndef UNDERSPAN_BASE_STOP_GUARD_H
#define UNDERSPAN_BASE_STOP_GUARD_H

#include "base/util.h"

/*
 * Starts a thread. After SIGTERM or SIGINT the main thread has 2 s for stop_begins(), and 4.8 s in
 * all; then `late` (on the new thread) is called, and the process ends with exit code 1. Time in
 * which the process itself is stopped does not count. To be called once, by the main thread, after
 * stop_block_signals(), with the rights that the new thread is to have. 0, or -errno with why.
 */
int stop_guard_start(void (*late)(void), struct why *why);

#endif
