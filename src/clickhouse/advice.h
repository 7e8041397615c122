/* SPDX-License-Identifier: Apache-2.0 */
/* What an error of a server, a proxy or the connection means for the user: parts of sentences. */
#ifndef UNDERSPAN_CLICKHOUSE_ADVICE_H
#define UNDERSPAN_CLICKHOUSE_ADVICE_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

/* What a wrong port or scheme looks like, or a proxy that is not there; `said`: by libcurl. */
const char *clickhouse_advice_for_failure(CURLcode code, const char *url, const char *said);

/* What to set here, which the server cannot say. */
const char *clickhouse_advice_for_exception(int code, const char *message);

const char *clickhouse_advice_for_status(long status, const char *url);

/*
 * Of a status that a proxy answers in the place of ClickHouse: what it means and what to do. False:
 * any other status.
 */
bool clickhouse_say_proxy(long status, const char *url, char *buf, size_t size);

/* 127.0.0.1, localhost, ::1: never by a proxy. */
bool clickhouse_is_loopback(const char *url);

#endif
