/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths that differ only in numbers and ids are the same endpoint, as in
 * sql/requests/endpoints.sql.
 */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_ENDPOINT_H
#define UNDERSPAN_COMMANDS_REQUESTS_ENDPOINT_H

#include <stddef.h>

/* "/item/42" becomes "/item/" and a star: numbers, UUIDs and 16 or more hexadecimal digits. Returns
 * `to`. */
char *request_endpoint(char *to, size_t size, const char *path);

#endif
