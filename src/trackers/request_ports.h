/* SPDX-License-Identifier: Apache-2.0 */
/* request.ports: which listeners the tracker follows. */
#ifndef UNDERSPAN_TRACKERS_REQUEST_PORTS_H
#define UNDERSPAN_TRACKERS_REQUEST_PORTS_H

#include "base/option.h"
#include "base/util.h"
#include "trackers/sched.h"

/* Takes the option's entries: numbers of ports, and `unix`. An empty list: all. */
int request_ports_choose(const struct string_list *list, struct why *why);
/* Before the object is loaded. */
void request_ports_apply(struct sched_bpf *skeleton);

#endif
