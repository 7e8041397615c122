/* SPDX-License-Identifier: Apache-2.0 */
/* Folded stacks as a gzipped profile of pprof. */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_PPROF_H
#define UNDERSPAN_COMMANDS_OFFCPU_PPROF_H

#include <stdio.h>

#include "commands/measure.h"
#include "commands/offcpu/folded.h"

/*
 * Message perftools.profiles.Profile (github.com/google/pprof, proto/profile.proto): one sample a
 * stack, its value off-CPU nanoseconds, its labels "thread" (the root frame, not repeated as a
 * location) and "cause". `measured` gives the duration. 0, -ENOMEM or -EIO.
 */
int pprof_write(struct folded *folded, const struct measured *measured, FILE *out);

#endif
