/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One self-contained HTML page around a command's JSON: style, script and data in one file, without
 * any access to a network. The viewer in src/html/viewer/ draws `body` by `kind`.
 */
#ifndef UNDERSPAN_HTML_PAGE_H
#define UNDERSPAN_HTML_PAGE_H

#include <jansson.h>
#include <stdio.h>

/*
 * Writes the page to `out`. `kind`: a view of src/html/viewer/main.js. `title` and all texts of
 * `body` may be untrusted: neither can end the data or run as script. `more`: further members
 * beside "kind", "title", "made", "version" and "body", or NULL. Borrows all; long texts of `body`
 * lose their middle. 0, -ENOMEM or -EIO.
 */
int html_page_write(FILE *out, const char *kind, const char *title, json_t *body, json_t *more);

/* Bytes of a text of `body` in the page, with quotes and comma: up to six times its length. */
size_t html_page_text_bytes(const char *text);

/* The same of any value. */
size_t html_page_bytes(json_t *value);

#endif
