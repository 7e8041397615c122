// SPDX-License-Identifier: Apache-2.0
/* Addresses of ClickHouse. See endpoint.h. */
#include "clickhouse/endpoint.h"

#include <curl/curl.h>
#include <string.h>

void clickhouse_endpoint_free(struct clickhouse_endpoint *e)
{
	if (e->password)
		explicit_bzero(e->password, strlen(e->password));
	free(e->url);
	free(e->unix_socket);
	free(e->user);
	free(e->password);
	free(e->database);
	free(e->table_prefix);
	free(e->ca_file);
	free(e->cert_file);
	free(e->key_file);
	*e = (struct clickhouse_endpoint){ 0 };
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

bool clickhouse_endpoint_same(const struct clickhouse_endpoint *a,
			      const struct clickhouse_endpoint *b)
{
	return same_text(a->url, b->url) && same_text(a->user, b->user) &&
	       same_text(a->password, b->password) && same_text(a->database, b->database) &&
	       same_text(a->table_prefix, b->table_prefix) && same_text(a->ca_file, b->ca_file) &&
	       same_text(a->cert_file, b->cert_file) && same_text(a->key_file, b->key_file) &&
	       a->connect_timeout_ns == b->connect_timeout_ns &&
	       a->stall_timeout_ns == b->stall_timeout_ns && a->timeout_ns == b->timeout_ns;
}

static int check_port(const char *url, CURLU *parts, struct why *why)
{
	char *port = NULL;
	int err = 0;

	if (curl_url_get(parts, CURLUPART_PORT, &port, 0) == CURLUE_OK && !strtoul(port, NULL, 10))
		err = why_fail(why, EINVAL,
			       "clickhouse: '%.200s' has port 0, at which no server listens: name "
			       "the port of ClickHouse's HTTP interface, 8123 by default (https: "
			       "8443)",
			       url);
	curl_free(port);
	return err;
}

static int check_parts(const char *url, CURLU *parts, struct why *why)
{
	static const char fix[] = "the user goes into clickhouse_user, the password into "
				  "clickhouse_password_file or $UNDERSPAN_CLICKHOUSE_PASSWORD";
	char *part = NULL;
	int err = 0;

	if (curl_url_get(parts, CURLUPART_USER, &part, 0) == CURLUE_OK ||
	    curl_url_get(parts, CURLUPART_PASSWORD, &part, 0) == CURLUE_OK) {
		err = why_fail(
			why, EINVAL,
			"clickhouse: the URL must not hold a user or password (visible in logs "
			"and process lists): %s",
			fix);
	} else if (curl_url_get(parts, CURLUPART_QUERY, &part, 0) == CURLUE_OK ||
		   curl_url_get(parts, CURLUPART_FRAGMENT, &part, 0) == CURLUE_OK) {
		/* may contain ?password=: not repeated */
		err = why_fail(why, EINVAL,
			       "clickhouse: no parameters in the URL: %s, the database "
			       "into clickhouse_database",
			       fix);
	} else if (curl_url_get(parts, CURLUPART_SCHEME, &part, 0) != CURLUE_OK ||
		   (strcmp(part, "http") != 0 && strcmp(part, "https") != 0)) {
		err = why_fail(why, EINVAL, "clickhouse: '%.200s' is neither http:// nor https://",
			       url);
	}
	curl_free(part);
	return err ?: check_port(url, parts, why);
}

int clickhouse_check_url(const char *url, struct why *why)
{
	CURLU *parts = curl_url();
	int err;

	if (!parts)
		return why_fail(why, ENOMEM, "out of memory");
	if (curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK)
		err = check_parts(url, parts, why);
	else if (strchr(url, '@'))
		err = why_fail(why, EINVAL,
			       "clickhouse: the URL is not valid, and has an @: user "
			       "and password do not belong there");
	else if (!*url || strpbrk(url, " \t\n"))
		err = why_fail(why, EINVAL,
			       "clickhouse: '%.200s' is %s: URLs are separated by one comma, "
			       "without spaces, as in http://a:8123,http://b:8123",
			       url, *url ? "no URL, it has a space" : "an empty place in the list");
	else
		err = why_fail(why, EINVAL,
			       "clickhouse: '%.200s' is not a URL such as http://127.0.0.1:8123: "
			       "http or https, and the port of ClickHouse's HTTP interface; an "
			       "IPv6 address stands in brackets, http://[::1]:8123",
			       url);
	curl_url_cleanup(parts);
	return err;
}
