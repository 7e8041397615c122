/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* A sample of a thread on a CPU: bpf/on_cpu.bpf.c -> src/trackers/on_cpu.c. */
#ifndef UNDERSPAN_EVENTS_ON_CPU_H
#define UNDERSPAN_EVENTS_ON_CPU_H

#include "events/event.h"
#include "python_stack.h"

/*
 * start and end: the time of the sample. Without a duration the governor keeps all samples with the
 * same probability; the row has the clock's period.
 */
struct on_cpu_event {
	struct event_header header;
	__u32 cpu;
	struct python_stack_info py_stack; /* frames follow */
};

#endif
