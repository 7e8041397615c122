/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks as a flame graph: a self-contained SVG file. Roots are at the bottom; a frame's
 * width is its time; the tooltip has the full name and time.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_FLAMEGRAPH_H
#define UNDERSPAN_COMMANDS_OFFCPU_FLAMEGRAPH_H

#include "commands/offcpu/folded.h"

/*
 * `diff`: colours show the change from `before` to `value`: red more, blue less. Titles may be any
 * text. 0, -ENOMEM or -EIO. Sorts the stacks by text.
 */
int flamegraph_write(struct folded *folded, bool diff, const char *title, const char *subtitle,
		     FILE *out);

#endif
