// SPDX-License-Identifier: Apache-2.0
/* The listening side of the store: address, microhttpd, an end in good order. See server.h. */
#include "store/server.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "log.h"
#include "store/directory.h"
#include "store/request.h"

enum {
	/* URL and headers of one request; ClickHouse's own limit for a URL is 1 MiB */
	CONNECTION_MEMORY = (1 << 20) + (64 << 10),
	CONNECTION_MEMORY_STEP = 64 << 10,
};

struct server {
	struct MHD_Daemon *daemon;
	struct request_context context;
	char *password;
	char hostname[HOST_NAME_MAX + 1];
	char url[STORE_URL_MAX];
};

static bool is_loopback(const struct sockaddr *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;

	if (a->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int resolve(const char *listen, bool anywhere, struct addrinfo **ret_address,
		   struct why *why)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	const char *colon = strrchr(listen, ':');
	char host[256];
	size_t n = colon ? (size_t)(colon - listen) : 0;
	int status;

	if (!colon || !n || n >= sizeof(host) || !colon[1] ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strtoul(colon + 1, NULL, 10) > 65535)
		return why_fail(why, EINVAL, "listen: '%s' is not HOST:PORT, as in 127.0.0.1:8123",
				listen);
	/* [::1]:8123 */
	if (listen[0] == '[' && listen[n - 1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)n - 2, listen + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)n, listen);
	status = getaddrinfo(host, colon + 1, &hints, ret_address);
	if (status)
		return why_fail(why, EINVAL, "listen: cannot find the address '%s': %s", host,
				gai_strerror(status));
	if (anywhere || is_loopback((*ret_address)->ai_addr))
		return 0;
	freeaddrinfo(*ret_address);
	return why_fail(
		why, EINVAL,
		"listen: %s is not a loopback address, others could reach the store without "
		"encryption; add --listen_anywhere if that is meant",
		host);
}

static int open_socket(const struct server_options *o, int *ret_fd, struct why *why)
{
	struct addrinfo *address;
	int fd, on = 1, err;

	err = resolve(o->listen, o->listen_anywhere, &address, why);
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
					"--listen, or port 0 for a free one",
					o->listen);
		else
			err = -why_fail(why, err, "cannot listen on %s: %s", o->listen,
					strerror(err));
	} else {
		*ret_fd = fd;
	}
	freeaddrinfo(address);
	return -err;
}

static int make_url(int fd, char *buf, size_t size)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
		return -errno;
	if (getnameinfo((struct sockaddr *)&address, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EIO;
	/* bound to every address: this host reaches it on loopback */
	if (!strcmp(host, "0.0.0.0"))
		strcpy(host, "127.0.0.1");
	else if (!strcmp(host, "::"))
		strcpy(host, "::1");
	return snprintf(buf, size, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
			port) < (int)size
		       ? 0
		       : -ENAMETOOLONG;
}

/* A client's broken request is the client's matter: for debugging only. */
static void log_microhttpd(void *cls, const char *fmt, va_list ap)
{
	char line[512];

	(void)cls;
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	log_debug("store: http: %s", line);
}

static int start_daemon(struct server *s, const struct server_options *o, int fd, struct why *why)
{
	s->daemon = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC | MHD_USE_ERROR_LOG,
		0, NULL, NULL, request_handle, &s->context, MHD_OPTION_EXTERNAL_LOGGER,
		log_microhttpd, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)o->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
		s->context.client_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_MEMORY_INCREMENT,
		(size_t)CONNECTION_MEMORY_STEP, MHD_OPTION_NOTIFY_COMPLETED, request_completed,
		&s->context, MHD_OPTION_END);
	if (!s->daemon)
		return why_fail(why, EIO, "microhttpd cannot serve %s (threads or files short?)",
				o->listen);
	return 0;
}

static void free_server(struct server *s)
{
	if (s->password)
		explicit_bzero(s->password, strlen(s->password));
	free(s->password);
	free(s);
}

int server_start(const struct server_options *o, struct server **ret_server, struct why *why)
{
	struct server *s = calloc(1, sizeof(*s));
	int fd = -1, err;

	if (!s || !(s->password = strdup(o->password))) {
		free(s);
		return why_fail(why, ENOMEM, "out of memory");
	}
	if (gethostname(s->hostname, sizeof(s->hostname) - 1) < 0)
		strcpy(s->hostname, "localhost");
	s->context.engine = o->engine;
	s->context.password = s->password;
	s->context.hostname = s->hostname;
	s->context.client_timeout_s = (unsigned int)(o->client_timeout_ns / NSEC_PER_SEC);
	s->context.budget.max_body = o->max_body_bytes;
	s->context.budget.max_total = 2 * o->max_body_bytes;
	err = open_socket(o, &fd, why);
	if (!err && make_url(fd, s->url, sizeof(s->url)) < 0)
		err = why_fail(why, EIO, "cannot tell the address that %s became", o->listen);
	if (!err)
		err = start_daemon(s, o, fd, why);
	if (err) {
		if (fd >= 0)
			close(fd);
		free_server(s);
		return err;
	}
	*ret_server = s;
	return 0;
}

const char *server_url(const struct server *s)
{
	return s->url;
}

static bool wait_idle(struct server *s, uint64_t ns)
{
	const struct timespec tick = { .tv_nsec = 20 * NSEC_PER_MSEC };

	for (uint64_t waited = 0; atomic_load(&s->context.active) > 0; waited += tick.tv_nsec) {
		if (waited >= ns)
			return false;
		nanosleep(&tick, NULL);
	}
	return true;
}

bool server_stop(struct server *s, uint64_t grace_ns)
{
	MHD_socket fd = MHD_quiesce_daemon(s->daemon);

	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	atomic_store(&s->context.stopping, true);
	if (!wait_idle(s, grace_ns)) {
		log_warn("store: cancelling %u requests that are still running",
			 atomic_load(&s->context.active));
		engine_cancel_all(s->context.engine);
		if (!wait_idle(s, NSEC_PER_SEC))
			return false;
	}
	MHD_stop_daemon(s->daemon);
	free_server(s);
	return true;
}
