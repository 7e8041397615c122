/* SPDX-License-Identifier: Apache-2.0 */
/* Closed unix sockets, of which the kernel reports nothing: see bpf/request/close.bpf.h. */
#ifndef UNDERSPAN_TRACKERS_REQUEST_UNIX_H
#define UNDERSPAN_TRACKERS_REQUEST_UNIX_H

#include "sched.skel.h"

/* Before loading; `seen`: the kernel side sees reads of unix sockets. */
void request_unix_open(struct sched_bpf *skeleton, bool seen);
/* Ends the requests of closed sockets, once a second; now_ns 0: at once. */
void request_unix_sweep(struct sched_bpf *skeleton, uint64_t now_ns);

#endif
