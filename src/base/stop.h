/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop requests (SIGTERM, SIGINT) during the start, which takes seconds on a busy machine, while a
 * stop may take five. The signals are blocked from the beginning and taken only by the collector's
 * loop. Start-up code polls stop_requested() between steps and gives up.
 */
#ifndef UNDERSPAN_BASE_STOP_H
#define UNDERSPAN_BASE_STOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Blocks SIGTERM, SIGINT and SIGHUP, also in threads created later. Returns the set. */
sigset_t stop_block_signals(void);

/* Whether a stop is requested and not taken by the loop. */
bool stop_requested(void);

/* The loop took the request, or ends by itself. */
void stop_begins(void);

/* A descriptor that is readable from then on; -1 with errno. First called before stop_begins(). */
int stop_begun_fd(void);

/* Time left of the five seconds, minus `reserve_ns` for later steps; all five seconds without a
 * request. */
uint64_t stop_left_ns(uint64_t reserve_ns);

/*
 * Brackets a step that cannot be interrupted (the BPF verifier): SIGTERM and SIGINT call `before`
 * in the signal handler and end the process at once, with exit code 0.
 */
void stop_at_once_begin(void (*before)(void));
void stop_at_once_end(void);

#endif
