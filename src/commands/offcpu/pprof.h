/* SPDX-License-Identifier: Apache-2.0 */
/* Folded stacks as a gzipped profile of pprof. */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_PPROF_H
#define UNDERSPAN_COMMANDS_OFFCPU_PPROF_H

#include <stdio.h>

#include "commands/offcpu/folded.h"

/*
 * Message perftools.profiles.Profile (github.com/google/pprof, proto/profile.proto): one sample per
 * stack with nanoseconds as values of the types off_cpu, gil and lock (parts of off_cpu) and, with
 * `with_cpu`, cpu; labels "thread" (the root frame, not repeated as a location) and "cause".
 * `from_us`: begin, wall clock. 0, -ENOMEM or -EIO.
 */
int pprof_write(struct folded *folded, bool with_cpu, int64_t from_us, uint64_t duration_ns,
		FILE *out);

#endif
