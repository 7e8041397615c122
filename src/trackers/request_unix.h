/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets: closed ones, of which the kernel reports nothing (bpf/request/close.bpf.h), and
 * names of services that requests wait for (bpf/request/unix_peer.bpf.h). Thread: the collector.
 */
#ifndef UNDERSPAN_TRACKERS_REQUEST_UNIX_H
#define UNDERSPAN_TRACKERS_REQUEST_UNIX_H

#include "events/request.h"
#include "sched.skel.h"

/* Before loading; `seen`: the kernel side sees reads of unix sockets. */
void request_unix_open(struct sched_bpf *skeleton, bool seen);
/* Ends the requests of closed sockets, once a second; now_ns 0: at once. */
void request_unix_sweep(struct sched_bpf *skeleton, uint64_t now_ns);

enum { REQUEST_PEER_PATH_SIZE = 112 };

/*
 * If the event's peer is the service of a unix socket: what it gave to bind(), with '@' for each
 * NUL of an abstract name, as `ss` prints them; otherwise, or if the name is not known any more,
 * "". The event has no address then.
 */
void request_unix_peer(const struct sched_bpf *skeleton, struct request_event *event,
		       char ret[REQUEST_PEER_PATH_SIZE]);

#endif
