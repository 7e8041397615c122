/* SPDX-License-Identifier: Apache-2.0 */
/* What a page of `underspan requests` holds of long lists. */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_PAGE_H
#define UNDERSPAN_COMMANDS_REQUESTS_PAGE_H

#include <jansson.h>

/*
 * Keeps the first rows of each list of the report (commands/report.h), as many as a page has room
 * for. "left_out" of the report has the number of others by list.
 */
void requests_page_limit(json_t *report);

#endif
