// SPDX-License-Identifier: Apache-2.0
/* What errors of a server, a proxy or the connection mean. See advice.h. */
#include "clickhouse/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clickhouse/exceptions.h"
#include "base/util.h"

static const char *host_of(const char *url)
{
	const char *host = strstr(url, "://");

	return host ? host + 3 : url;
}

bool clickhouse_is_loopback(const char *url)
{
	const char *host = host_of(url);

	return !strncmp(host, "127.", 4) || !strncmp(host, "localhost", 9) ||
	       !strncmp(host, "[::1]", 5);
}

/* The variable from which libcurl takes a proxy; NULL: none. no_proxy may exempt the server. */
static const char *proxy_variable(const char *url)
{
	/* not HTTP_PROXY, which a CGI client could set */
	static const char *const plain[] = { "http_proxy", "all_proxy", "ALL_PROXY", NULL };
	static const char *const tls[] = { "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
					   NULL };
	const char *const *name = strncmp(url, "https:", 6) ? plain : tls;

	for (; !clickhouse_is_loopback(url) && *name; name++) {
		const char *value = getenv(*name);

		if (value && *value)
			return *name;
	}
	return NULL;
}

/* Whether libcurl's sentence names the host of that variable's proxy. */
static bool names_proxy(const char *said, const char *variable)
{
	const char *host = host_of(getenv(variable)), *at = strrchr(host, '@');
	char name[256];

	host = at ? at + 1 : host;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(host, ":/"), host);
	return *name && strstr(said, name);
}

static const char *advice_for_proxy(const char *variable)
{
	static _Thread_local char text[200];

	snprintf(text, sizeof(text),
		 ": this is the proxy of $%s: is it right? For a connection without the proxy name "
		 "ClickHouse's host in $no_proxy",
		 variable);
	return text;
}

const char *clickhouse_advice_for_failure(CURLcode code, const char *url, const char *said)
{
	const char *variable = proxy_variable(url);
	bool tls = !strncmp(url, "https:", 6);

	if (variable && (code == CURLE_COULDNT_RESOLVE_PROXY ||
			 ((code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT) &&
			  names_proxy(said, variable))))
		return advice_for_proxy(variable);
	switch (code) {
	case CURLE_COULDNT_CONNECT:
		return tls ? ": is ClickHouse running there? Its HTTPS port is 8443 by default"
			   : ": is ClickHouse running there? Its HTTP port is 8123 by default";
	case CURLE_COULDNT_RESOLVE_HOST:
		return ": is the name right, and does this host know it?";
	case CURLE_SSL_CONNECT_ERROR:
		return ": does that port speak TLS? Without TLS it is http://";
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_GOT_NOTHING:
		return tls ? "" : ": is that an HTTP port? With TLS it is https://";
	default:
		return "";
	}
}

const char *clickhouse_advice_for_exception(int code, const char *message)
{
	/* the form of exceptions until 2021 */
	if (strstr(message, "e.displayText() = "))
		return ": this server is too old, underspan's views need ClickHouse 23.1 or newer "
		       "(Debian's own package is 18.16)";
	switch (code) {
	case EXCEPTION_AUTHENTICATION_FAILED:
		return ": see clickhouse_user, clickhouse_password_file and "
		       "$UNDERSPAN_CLICKHOUSE_PASSWORD";
	case EXCEPTION_UNKNOWN_DATABASE:
		return ": see clickhouse_database, or create the database";
	case EXCEPTION_CLUSTER_DOESNT_EXIST:
		return ": `underspan sql 'SELECT DISTINCT cluster FROM system.clusters'` lists "
		       "those of the server";
	case EXCEPTION_UNKNOWN_POLICY:
		return ": `underspan sql 'SELECT DISTINCT policy_name FROM "
		       "system.storage_policies'` lists those of the server";
	case EXCEPTION_UNKNOWN_STORAGE:
		return ": `underspan sql 'SELECT name FROM system.table_engines'` lists those of "
		       "the server";
	case EXCEPTION_BAD_ARGUMENTS:
		return strstr(message, "Macro 'uuid'")
			       ? ": use --cluster=NAME, or a database of engine Replicated"
			       : "";
	default:
		return "";
	}
}

static bool has_path(const char *url)
{
	const char *host = strstr(url, "://"), *path = host ? strchr(host + 3, '/') : NULL;

	return path && path[1];
}

const char *clickhouse_advice_for_status(long status, const char *url)
{
	return status == 404 && has_path(url)
		       ? ": a path in the URL is a proxy's; a database goes into clickhouse_database"
		       : "";
}

/* What the proxy cannot or may not do; NULL: a status of no proxy. */
static const char *meaning(long status, const char *variable)
{
	switch (status) {
	case 401:
		return "wants a login of its own, which underspan does not have: let it pass "
		       "X-ClickHouse-User and X-ClickHouse-Key to ClickHouse";
	case 403:
		return variable ? "refuses that address: allow it there" : NULL;
	case 407:
		return "wants a user and a password";
	case 502:
	case 503:
		return "cannot reach ClickHouse: is ClickHouse running, and is its address right "
		       "there?";
	case 504:
		return "had no answer of ClickHouse in the proxy's own time: is ClickHouse "
		       "running, and is the proxy's limit long enough?";
	default:
		return NULL;
	}
}

bool clickhouse_say_proxy(long status, const char *url, char *buf, size_t size)
{
	const char *variable = proxy_variable(url), *is = meaning(status, variable);
	int n;

	if (!is)
		return false;
	n = snprintf(buf, size, "%s%s answered HTTP %ld: it %s",
		     variable ? "the proxy of $" : "a proxy before ClickHouse", variable ?: "",
		     status, is);
	if (status == 407)
		n += snprintf(buf + n, size - (size_t)n,
			      ", as in %s=http://USER:PASSWORD@PROXY:PORT",
			      variable ?: "http_proxy");
	if (variable)
		snprintf(
			buf + n, size - (size_t)n,
			"%s For a connection without the proxy name ClickHouse's host in $no_proxy",
			buf[n - 1] == '?' ? "" : ".");
	return true;
}
