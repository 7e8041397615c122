/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timeline as a trace of Perfetto (ui.perfetto.dev, trace_processor): message Trace of
 * protos/perfetto/trace, with TrackDescriptors and pairs of TrackEvents.
 */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_PERFETTO_H
#define UNDERSPAN_COMMANDS_TIMELINE_PERFETTO_H

#include <stdio.h>

#include "commands/timeline/slices.h"

/* What the trace says of itself, in a track of its own. */
struct timeline_window {
	uint64_t from_ns, to_ns; /* since the epoch */
	const char *title;	 /* may contain untrusted names */
	const json_t *notes;	 /* texts */

	/* Another window for comparison, shown `shift_ns` later; NULL: none. Its processes are
	 * tracks of their own, named "before: ..". */
	struct timeline *before;
	const char *before_title;
	uint64_t shift_ns, before_ns; /* before_ns: its length */
};

/*
 * Times of rows are microseconds: a slice that ends less than two after the slice around it ends
 * with it; its annotation has the exact duration. 0, -ENOMEM or -EIO.
 */
int perfetto_write(struct timeline *t, const struct timeline_window *window, FILE *out);

#endif
