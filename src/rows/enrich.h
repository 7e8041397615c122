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

/*
 * The same for a sum over an interval, from the header's start to its end. A process may have ended
 * before the interval's end, and a thread may have started after its begin: the thread's name is
 * looked up for both.
 */
void enrich_sum(struct row_context *context, const struct event_header *header,
		struct row_common *ret);

/*
 * The end of the sum, or of its process. A look-up of this time finds the process, and not the one
 * before its exec(), and asks again for what could not be read within the interval.
 */
uint64_t enrich_sum_last_ns(struct row_context *context, const struct event_header *header);

#endif
