/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discoveries of all processes. A process may have one running discovery (discovery.h). After two
 * seconds without an answer the process is tracked as refused for the time being; rechecks find a
 * libpython that is loaded later.
 */
#ifndef UNDERSPAN_PROCESS_DISCOVERIES_H
#define UNDERSPAN_PROCESS_DISCOVERIES_H

#include <stdbool.h>
#include <stdint.h>

void discoveries_start(void);
/* Results of running discoveries are dropped. */
void discoveries_stop(void);

/* First discovery. `exec`: just started, no library can be loaded so far. */
void discover(uint32_t host_pid, bool exec);

/* Repeats discoveries refused for lack of room. */
void discover_without_room(void);

/* Whether a discovery of this process runs. */
bool discoveries_pending(uint32_t host_pid);
/* The process called exec(): the result of a running discovery is dropped. */
void discoveries_outdate(uint32_t host_pid);

/* Discoveries begun between the calls belong to the start. */
void discoveries_of_start(bool begin);
/* Whether the discoveries of the start have ended, except stalled ones. */
bool discoveries_of_start_done(void);

/* Whether processes may have been missed. */
bool discoveries_want_rescan(void);
void discoveries_rescan_begins(void);

void discoveries_tick(uint64_t now_ns);

/* Time until the next frequent recheck, at most `limit_ns`. */
uint64_t discoveries_due_in(uint64_t now_ns, uint64_t limit_ns);

#endif
