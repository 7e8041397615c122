// SPDX-License-Identifier: Apache-2.0
/* The option --html. See html_output.h. */
#include "commands/html_output.h"

#include <string.h>
#include <unistd.h>

#include "commands/measure.h"
#include "commands/request_parts.h"
#include "html/page.h"

int html_output_check(bool html, bool json, const char *example, struct why *why)
{
	if (html && json)
		return why_fail(why, EINVAL, "html and json exclude each other: give only one");
	if (html && isatty(STDOUT_FILENO))
		return why_fail(why, EINVAL,
				"html: stdout is a terminal, and a page is for a browser: write it "
				"to a file, `%s`",
				example);
	return 0;
}

int html_output_write(const char *kind, const char *title, json_t *body, struct why *why)
{
	json_t *parts = request_parts_json();
	int err = parts ? html_page_write(stdout, kind, title, body, parts) : -ENOMEM;

	json_decref(parts);
	if (err == -ENOMEM)
		return why_fail(why, ENOMEM, "out of memory");
	return measure_flush(why);
}
