/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline as a self-contained HTML page: lanes of processes and threads on one time axis. */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_HTML_H
#define UNDERSPAN_COMMANDS_TIMELINE_HTML_H

#include "commands/timeline/perfetto.h"

/*
 * The longest events, as far as a page of 2 MB has room; idle threads and shorter events are left
 * out, which the page says. Drops these slices. 0, -ENOMEM or -EIO.
 */
int timeline_html_write(struct timeline *t, const struct timeline_window *window, FILE *out);

#endif
