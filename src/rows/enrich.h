/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an event's header to the common columns: ids of host, container and pod, names. Look-ups
 * only; expensive results are cached within bounds.
 */
#ifndef UNDERSPAN_ROWS_ENRICH_H
#define UNDERSPAN_ROWS_ENRICH_H

#include "rows/row.h"
#include "rows/row_context.h"

/* `host` NULL: the machine's name; `boot_id` NULL: the kernel's. */
void enrich_init(const char *host, const char *boot_id);

const char *enrich_host(void);

/* Strings in `ret` are borrowed; valid until the next event. */
void enrich_event(struct row_context *context, const struct event_header *header,
		  struct row_common *ret);

#endif
