/* SPDX-License-Identifier: Apache-2.0 */
/* Connections and answers counted but not followed by the kernel side, as in TLS. */
#ifndef UNDERSPAN_TRACKERS_REQUEST_UNFOLLOWED_H
#define UNDERSPAN_TRACKERS_REQUEST_UNFOLLOWED_H

#include "sched.skel.h"
#include "trackers/tracker.h"

/* A row of ebpf_probe_health for each increase, at most every 10 s but at the end. */
void request_unfollowed_report(struct sched_bpf *skeleton, const struct tracker_output *output,
			       uint64_t now_ns);

#endif
