/* SPDX-License-Identifier: Apache-2.0 */
/* The option --html of commands with a single result. */
#ifndef UNDERSPAN_COMMANDS_HTML_OUTPUT_H
#define UNDERSPAN_COMMANDS_HTML_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/util.h"

#define HTML_OPTION_HELP "one HTML page, to stdout: redirect to a file and open with a browser"

/*
 * -EINVAL with a sentence: both forms are wanted, or stdout is a terminal. `example`: the command
 * that writes a page.
 */
int html_output_check(bool html, bool json, const char *example, struct why *why);

/* Writes a page with the parts of requests to stdout. See html_page_write(). */
int html_output_write(const char *kind, const char *title, json_t *body, struct why *why);

#endif
