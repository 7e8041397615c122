/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A thread that changed its name: bpf/thread_rename.bpf.c -> src/trackers/thread_rename.c. */
#ifndef UNDERSPAN_EVENTS_THREAD_RENAME_H
#define UNDERSPAN_EVENTS_THREAD_RENAME_H

#include "events/event.h"

struct thread_rename_event {
	struct event_header header; /* comm: the old name; no duration */
	char new_comm[EVENT_COMM_LEN];
};

#endif
