/* SPDX-License-Identifier: Apache-2.0 */
/* What a page of `underspan explain` holds of a long request. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_PAGE_H
#define UNDERSPAN_COMMANDS_EXPLAIN_PAGE_H

#include <jansson.h>

/*
 * Keeps the longest events (waits, collections, ...) of all requests and spans, as many as a page
 * has room for. Where others are left out, the request or span says so: left_out has their number
 * (events) and time (ms). -ENOMEM.
 */
int explain_page_limit(json_t *requests, json_t *spans);

#endif
