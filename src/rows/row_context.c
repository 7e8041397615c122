// SPDX-License-Identifier: Apache-2.0
/* See row_context.h. */
#include "rows/row_context.h"

#include "workers/readers.h"

void row_waits_for(struct row_context *context, uint32_t host_pid)
{
	if (!readers_stalled_by(host_pid))
		context->waits_for = host_pid;
}

struct process *row_process(struct row_context *context, uint32_t host_pid, uint64_t event_ns)
{
	if (!context->host_pid) {
		context->host_pid = host_pid;
		context->event_ns = event_ns;
		context->process = process_of_event(host_pid, event_ns);
	}
	return host_pid == context->host_pid && event_ns == context->event_ns
		       ? context->process
		       : process_of_event(host_pid, event_ns);
}
