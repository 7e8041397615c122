/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of tracks: in a lane slices nest (threads), or follow each other (requests). */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_LANES_H
#define UNDERSPAN_COMMANDS_TIMELINE_LANES_H

#include "commands/timeline/slices.h"

/* Deepest nesting; deeper slices are in the next lane. */
enum { LANE_DEPTH = 16 };

/* Sets lane and end_ns; sorts by process, track, thread, lane and begin. 0 or -ENOMEM. */
int lanes_assign(struct timeline *t);

bool lanes_same_track(const struct slice *a, const struct slice *b);

#endif
