// SPDX-License-Identifier: Apache-2.0
/* The listening sockets of the store, microhttpd, orderly shutdown. See server.h. */
#include "store/server.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "store/request.h"

enum {
	/* URL and headers of one request; ClickHouse's own limit for a URL is 1 MiB */
	CONNECTION_MEMORY = (1 << 20) + (64 << 10),
	CONNECTION_MEMORY_STEP = 64 << 10,
	LISTEN_BACKLOG = 1024,
};

struct server {
	struct MHD_Daemon *daemons[2]; /* TCP, unix: separate connection limits */
	struct request_context context;
	char *password;
	char hostname[HOST_NAME_MAX + 1];
};

int server_url(int fd, char *buf, size_t size)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
		return -errno;
	if (getnameinfo((struct sockaddr *)&address, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EIO;
	/* bound to all addresses: reachable on loopback */
	if (!strcmp(host, "0.0.0.0"))
		strcpy(host, "127.0.0.1");
	else if (!strcmp(host, "::"))
		strcpy(host, "::1");
	return snprintf(buf, size, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
			port) < (int)size
		       ? 0
		       : -ENAMETOOLONG;
}

/* Broken requests are client errors: log level debug. */
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

static int start_daemon(struct server *s, const struct server_options *o, int fd,
			struct MHD_Daemon **ret_daemon, struct why *why)
{
	/* served in order of arrival */
	listen(fd, LISTEN_BACKLOG);
	*ret_daemon = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC | MHD_USE_ERROR_LOG,
		0, NULL, NULL, request_handle, &s->context, MHD_OPTION_EXTERNAL_LOGGER,
		log_microhttpd, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)o->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
		s->context.client_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_MEMORY_INCREMENT,
		(size_t)CONNECTION_MEMORY_STEP, MHD_OPTION_NOTIFY_COMPLETED, request_completed,
		&s->context, MHD_OPTION_NOTIFY_CONNECTION, clients_notify, s->context.clients,
		MHD_OPTION_END);
	if (!*ret_daemon)
		return why_fail(why, EIO, "microhttpd cannot serve (threads or files short?)");
	return 0;
}

static void stop_daemons(struct server *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->daemons); i++) {
		if (s->daemons[i])
			MHD_stop_daemon(s->daemons[i]);
	}
}

static void free_server(struct server *s)
{
	clients_free(s->context.clients);
	if (s->password)
		explicit_bzero(s->password, strlen(s->password));
	free(s->password);
	free(s);
}

int server_start(const struct server_options *o, struct server **ret_server, struct why *why)
{
	struct server *s = calloc(1, sizeof(*s));
	int err;

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
	s->context.clients = clients_new(o->engine, o->max_connections, o->client_timeout_ns);
	err = s->context.clients ? 0 : why_fail(why, ENOMEM, "out of memory or threads");
	if (!err)
		err = start_daemon(s, o, o->listen_fd, &s->daemons[0], why);
	if (!err)
		err = start_daemon(s, o, o->socket_fd, &s->daemons[1], why);
	if (err) {
		stop_daemons(s);
		free_server(s);
		return err;
	}
	*ret_server = s;
	return 0;
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
	for (size_t i = 0; i < ARRAY_SIZE(s->daemons); i++) {
		MHD_socket fd = MHD_quiesce_daemon(s->daemons[i]);

		if (fd != MHD_INVALID_SOCKET)
			close(fd);
	}
	atomic_store(&s->context.stopping, true);
	if (!wait_idle(s, grace_ns)) {
		log_warn("store: cancelling %u running request%s", atomic_load(&s->context.active),
			 plural(atomic_load(&s->context.active)));
		engine_cancel_all(s->context.engine);
		if (!wait_idle(s, NSEC_PER_SEC))
			return false;
	}
	stop_daemons(s);
	free_server(s);
	return true;
}
