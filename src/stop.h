/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Being told to stop, by SIGTERM or SIGINT, while the agent starts: that takes seconds on a busy
 * machine, and a stop has five. The signals are blocked from the first moment on and wait for the
 * collector's loop, which is the only one to take them; whoever has a longer way to go before that
 * loop asks here between two steps, and gives up.
 */
#ifndef UNDERSPAN_STOP_H
#define UNDERSPAN_STOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Blocks SIGTERM, SIGINT and SIGHUP, in the threads to come as well. Returns the three. */
sigset_t stop_block_signals(void);

/* Have we been told to stop, and has the loop not taken it yet? */
bool stop_requested(void);

/* The loop has taken it, or ends by itself. */
void stop_begins(void);

/* Of the five seconds, `reserve_ns` being for others; all of them when nobody told us to stop. */
uint64_t stop_left_ns(uint64_t reserve_ns);

/*
 * For a step that cannot be asked to give up, and leaves nothing behind: the kernel's look at a
 * program of ours. In between, SIGTERM and SIGINT end the process at once, with 0.
 */
void stop_at_once_begin(void);
void stop_at_once_end(void);

#endif
