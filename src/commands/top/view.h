/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of `underspan top`: the entries of a level in a width, for the screen and for --once. */
#ifndef UNDERSPAN_COMMANDS_TOP_VIEW_H
#define UNDERSPAN_COMMANDS_TOP_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "commands/top/sums.h"

enum { TOP_LINE_BYTES = 2048 };

/* Names of columns to sort by, NULL-terminated: part names, "hidden", "requests". */
extern const char *const top_sort_names[];
enum { TOP_SORT_WAITS, TOP_SORT_HIDDEN, TOP_SORT_REQUESTS, TOP_SORT_PARTS };

struct top_view {
	enum top_level level;
	int sort;				     /* index into top_sort_names */
	bool whole;				     /* of all the time, not of the last second */
	bool with_idle;				     /* entries without time except idle */
	unsigned int (*measured)(uint32_t host_pid); /* of_process of top_part_is_known() */

	/* Two windows: the sums before, sorted by what changed most; NULL: one window. */
	struct top_sums *before;
	unsigned int (*measured_before)(uint32_t group);
	uint32_t (*processes)(uint32_t group), (*processes_before)(uint32_t group);
};

/* Entries to be shown, sorted; returns their number. *ret: to be freed. */
size_t top_view_list(struct top_sums *sums, const struct top_view *view, struct top_entry ***ret);

/* Cut or padded to `columns` (at least 20). */
void top_view_head(const struct top_view *view, size_t columns, char line[TOP_LINE_BYTES]);
void top_view_line(const struct top_sums *sums, const struct top_view *view,
		   const struct top_entry *entry, size_t columns, char line[TOP_LINE_BYTES]);

/* The line of the same entry in the window before. */
void top_view_before(const struct top_view *view, const struct top_entry *entry, size_t columns,
		     char line[TOP_LINE_BYTES]);

/* "not measured all the time (-): off_cpu, request", or "". */
void top_view_lacks(const struct top_sums *sums, const struct top_view *view,
		    char line[TOP_LINE_BYTES]);

/* Time of an entry off the CPU without idle, nanoseconds. */
uint64_t top_waits_ns(const struct top_sum *sum);

#endif
