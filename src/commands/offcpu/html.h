/* SPDX-License-Identifier: Apache-2.0 */
/* Folded off-CPU stacks for the HTML report (src/html/viewer/flame.js). */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_HTML_H
#define UNDERSPAN_COMMANDS_OFFCPU_HTML_H

#include <jansson.h>

#include "commands/offcpu/folded.h"

/*
 * {"frames": [text], "stacks": [[us, before_us, frame...]], "compared", "rest_us", "rest_stacks"}:
 * the largest stacks, frames by index, up to about 1.5 MB. Smaller stacks are combined by thread
 * and cause as "(smaller stacks)", so that sums stay exact. Sorts `folded`. NULL: out of memory.
 */
json_t *offcpu_html_body(struct folded *folded, bool compared);

#endif
