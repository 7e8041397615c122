/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf events of event-loop threads: a program at each switch out, and a program on the
 * thread's own CPU clock (bpf/loop_stall.bpf.c). Each thread has two file descriptors here; no
 * other thread pays.
 */
#ifndef UNDERSPAN_TRACKERS_LOOP_WATCH_H
#define UNDERSPAN_TRACKERS_LOOP_WATCH_H

#include "loop_stall.skel.h"
#include "trackers/tracker.h"

void loop_watch_open(struct loop_stall_bpf *skeleton);
void loop_watch_close(void);
/* Closes all events. */
void loop_watch_none(void);
/* Opens events for new loop threads, closes those of ended threads. */
void loop_watch_tick(const struct tracker_output *output, uint64_t period_ns);

#endif
