// SPDX-License-Identifier: Apache-2.0
/* Lists of a page of `underspan requests`. See page.h. */
#include "commands/requests/page.h"

#include "base/util.h"
#include "html/page.h"

/* Together with the page's own script below 2 MB. */
static const struct page_list {
	const char *name;
	size_t bytes;
} page_lists[] = { { "slowest", 900000 }, { "endpoints", 600000 }, { "listeners", 200000 } };

/* Returns the number of rows left out, from the end. */
static size_t limit(json_t *rows, size_t bytes)
{
	size_t n = json_array_size(rows), used = 0, kept;

	for (kept = 0; kept < n; kept++) {
		used += html_page_bytes(json_array_get(rows, kept));
		if (used > bytes)
			break;
	}
	while (json_array_size(rows) > kept)
		json_array_remove(rows, json_array_size(rows) - 1);
	return n - kept;
}

void requests_page_limit(json_t *report)
{
	json_t *left_out = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(page_lists); i++) {
		const struct page_list *list = &page_lists[i];
		size_t left = limit(json_object_get(report, list->name), list->bytes);

		json_object_set_new(left_out, list->name, json_integer((json_int_t)left));
	}
	json_object_set_new(report, "left_out", left_out);
	json_object_del(report, "coverage"); /* a row per host, and the notes have said it */
}
