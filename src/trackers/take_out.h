/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trackers taken out while the agent runs, and put back (agent/governor.h decides). Detached are
 * the tracker's programs, and programs shared by several trackers once all these trackers are out.
 * Programs on the life of processes stay: their state is needed when the tracker returns. Probes in
 * Python binaries stay, and return at once. Thread of all calls: the collector.
 */
#ifndef UNDERSPAN_TRACKERS_TAKE_OUT_H
#define UNDERSPAN_TRACKERS_TAKE_OUT_H

#include "trackers/trackers.h"

/* Whether the tracker measures and can be taken out. */
bool tracker_may_be_taken_out(const struct running_tracker *running);

/* Sets running->out_since_ns. A separate thread closes the links. */
void tracker_take_out(struct running_tracker *running, uint64_t now_ns);

/*
 * Clears running->out_since_ns. -EAGAIN: links are still being closed; otherwise the kernel's
 * error, and the tracker stays out.
 */
int tracker_put_back(struct running_tracker *running, struct why *why);

/* Empties a map of the kernel side. Returns the number of entries, or of entries accepted by
 * `is_open`. */
uint64_t map_forget(const struct bpf_map *map, bool (*is_open)(const void *value));

#endif
