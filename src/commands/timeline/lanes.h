/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of tracks, and their names: in a lane slices nest (threads), or follow each other
 * (requests). */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_LANES_H
#define UNDERSPAN_COMMANDS_TIMELINE_LANES_H

#include "commands/timeline/slices.h"

/* Deepest nesting; deeper slices are in the next lane. */
enum { LANE_DEPTH = 16 };

/* Sets lane and end_ns; sorts by process, track, thread, lane and begin. 0 or -ENOMEM. */
int lanes_assign(struct timeline *t);

/* By enum timeline_track; a thread's has its own. */
extern const char *const timeline_track_names[];

/* "shop (gunicorn)". */
void timeline_process_name(const struct timeline *t, uint32_t host_pid, char *ret, size_t size);

/* "": not known. */
const char *timeline_thread_name(const struct timeline *t, uint32_t host_pid, uint32_t host_tid);

bool lanes_same_track(const struct slice *a, const struct slice *b);

#endif
