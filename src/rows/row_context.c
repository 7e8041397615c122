// SPDX-License-Identifier: Apache-2.0
/* See row_context.h. */
#include "rows/row_context.h"

#include "workers/readers.h"

void row_waits_for(struct row_context *context, uint32_t host_pid)
{
	if (!readers_stalled_by(host_pid))
		context->waits_for = host_pid;
}
