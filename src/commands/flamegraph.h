/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks as a flame graph: one SVG file that needs nothing else. Roots are at the bottom, a
 * frame is as wide as its microseconds, and says so, with all of its name, when it is pointed at.
 */
#ifndef UNDERSPAN_FLAMEGRAPH_H
#define UNDERSPAN_FLAMEGRAPH_H

#include "commands/folded.h"

/*
 * `diff`: colours say how `value` differs from `before`: red is more, blue is less. The titles may
 * be any text. Returns 0, -ENOMEM or -EIO. Orders the stacks by their texts.
 */
int flamegraph_write(struct folded *folded, bool diff, const char *title, const char *subtitle,
		     FILE *out);

#endif
