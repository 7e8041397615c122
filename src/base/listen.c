// SPDX-License-Identifier: Apache-2.0
/* A listening socket. See listen.h. */
#include "base/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static bool is_loopback(const struct sockaddr *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;

	if (a->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static bool is_port(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text) &&
	       strtoul(text, NULL, 10) <= 65535;
}

static int resolve(const char *key, const char *listen, bool anywhere,
		   struct addrinfo **ret_address, struct why *why)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	const char *colon = strrchr(listen, ':');
	char host[256];
	size_t n = colon ? (size_t)(colon - listen) : 0;
	int status;

	if (!colon || !n || n >= sizeof(host) || !is_port(colon + 1))
		return why_fail(why, EINVAL, "%s: '%s' is not HOST:PORT, as in 127.0.0.1:%s", key,
				listen,
				is_port(listen)		      ? listen
				: colon && is_port(colon + 1) ? colon + 1
							      : "8123");
	/* [::1]:8123 */
	if (listen[0] == '[' && listen[n - 1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)n - 2, listen + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)n, listen);
	status = getaddrinfo(host, colon + 1, &hints, ret_address);
	if (status)
		return why_fail(why, EINVAL, "%s: cannot find the address '%s': %s", key, host,
				gai_strerror(status));
	if (anywhere || is_loopback((*ret_address)->ai_addr))
		return 0;
	freeaddrinfo(*ret_address);
	return why_fail(why, EINVAL,
			"%s: %s is not a loopback address: other machines could connect without "
			"encryption; add --%s_anywhere to allow this",
			key, host, key);
}

int listen_open(const char *key, const char *where, bool anywhere, int *ret_fd, struct why *why)
{
	struct addrinfo *address;
	int fd, on = 1, err;

	err = resolve(key, where, anywhere, &address, why);
	if (err)
		return err;
	fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, 128) < 0) {
		err = errno;
		if (fd >= 0)
			close(fd);
		if (err == EADDRINUSE)
			err = -why_fail(why, err,
					"%s is in use by another program; choose another port with "
					"--%s, or port 0 for a free one",
					where, key);
		else if (err == EADDRNOTAVAIL)
			err = -why_fail(why, err,
					"cannot listen on %s: no interface of this host has that "
					"address, `ip address` lists them",
					where);
		else if (err == EACCES)
			err = -why_fail(
				why, err,
				"cannot listen on %s: %s: a port below 1024 is root's, choose "
				"another with --%s",
				where, strerror(err), key);
		else
			err = -why_fail(why, err, "cannot listen on %s: %s", where, strerror(err));
	} else {
		*ret_fd = fd;
	}
	freeaddrinfo(address);
	return -err;
}

int listen_check(const char *key, const char *where, bool anywhere, struct why *why)
{
	struct addrinfo *address;
	int err = resolve(key, where, anywhere, &address, why);

	if (!err)
		freeaddrinfo(address);
	return err;
}
