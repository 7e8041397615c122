/* SPDX-License-Identifier: Apache-2.0 */
/* Folded stacks as a file of speedscope, the flame graph viewer of the browser. */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_SPEEDSCOPE_H
#define UNDERSPAN_COMMANDS_OFFCPU_SPEEDSCOPE_H

#include <stdio.h>

#include "commands/offcpu/folded.h"

/*
 * One "sampled" profile, weights in microseconds, samples sorted by stack
 * (https://www.speedscope.app/file-format-schema.json). 0, -ENOMEM or -EIO.
 */
int speedscope_write(struct folded *folded, const char *name, FILE *out);

#endif
