// SPDX-License-Identifier: Apache-2.0
/* The list of connections, and the thread that enforces deadlines. See clients.h. */
#include "store/clients.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

enum {
	STRANGER_SECONDS = 10,
	MIN_BYTES_PER_SECOND = 16 << 10,
	TICK_MS = 100,
	KILLS_A_TICK = 16,
	QUERY_ID_SIZE = 256,
};

/* Minimum time of an untrusted connection before eviction, and with unread bytes; accept() waits
 * that long. */
static const uint64_t MIN_STRANGER_NS = 200 * NSEC_PER_MSEC;
static const uint64_t LATE_STRANGER_NS = 500 * NSEC_PER_MSEC;

struct client {
	TAILQ_ENTRY(client) link;
	struct clients *all;
	int fd;
	bool trusted, closed;
	uint64_t began_ns, deadline_ns, body_ns; /* deadline 0: none; body_ns: start of the body */
	uint64_t body_bytes;
	unsigned int gone_ticks;
	char query_id[QUERY_ID_SIZE]; /* "": no query to cancel */
};

TAILQ_HEAD(client_list, client);

struct clients {
	struct engine *engine;
	size_t max_strangers, strangers; /* not yet closed */
	uint64_t timeout_ns, stranger_ns;
	pthread_mutex_t lock;
	struct client_list list; /* oldest first */
	pthread_t thread;
	bool stopping;
};

/* The connection's thread wakes up and ends. The descriptor is valid until MHD reports CLOSED. */
static void shut_client(struct client *client)
{
	if (client->closed)
		return;
	client->closed = true;
	if (!client->trusted)
		client->all->strangers--;
	shutdown(client->fd, SHUT_RDWR);
}

static bool has_gone(struct client *client)
{
	struct pollfd p = { .fd = client->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Copies the ids of queries to cancel into `ids`: the engine is called without the lock. */
static size_t check_clients(struct clients *c, char ids[][QUERY_ID_SIZE])
{
	uint64_t now = clock_monotonic_ns();
	struct client *client;
	size_t n = 0;

	TAILQ_FOREACH(client, &c->list, link)
	{
		if (client->deadline_ns && now > client->deadline_ns)
			shut_client(client);
		if (!*client->query_id)
			continue;
		client->gone_ticks = has_gone(client) ? client->gone_ticks + 1 : 0;
		/* repeated, since the query may start late */
		if (client->gone_ticks % 4 == 2 && n < KILLS_A_TICK)
			memcpy(ids[n++], client->query_id, QUERY_ID_SIZE);
	}
	return n;
}

static void *watch(void *context)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * NSEC_PER_MSEC };
	static char ids[KILLS_A_TICK][QUERY_ID_SIZE];
	struct clients *c = context;
	bool stopping = false;

	while (!stopping) {
		size_t n;

		nanosleep(&tick, NULL);
		pthread_mutex_lock(&c->lock);
		n = check_clients(c, ids);
		stopping = c->stopping;
		pthread_mutex_unlock(&c->lock);
		for (size_t i = 0; i < n; i++)
			engine_cancel(c->engine, ids[i]);
	}
	return NULL;
}

struct clients *clients_new(struct engine *engine, size_t max_connections, uint64_t timeout_ns)
{
	struct clients *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->engine = engine;
	c->max_strangers = max_connections > 1 ? max_connections / 2 : 1;
	c->timeout_ns = timeout_ns;
	c->stranger_ns = STRANGER_SECONDS * NSEC_PER_SEC;
	if (c->stranger_ns > timeout_ns)
		c->stranger_ns = timeout_ns;
	TAILQ_INIT(&c->list);
	pthread_mutex_init(&c->lock, NULL);
	if (pthread_create(&c->thread, NULL, watch, c) == 0)
		return c;
	free(c);
	return NULL;
}

void clients_free(struct clients *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* How long until the connection may be evicted. Where bytes are unread, the server is late. */
static uint64_t ns_to_eviction(const struct client *client, uint64_t now_ns)
{
	uint64_t age_ns = now_ns - client->began_ns, least_ns = MIN_STRANGER_NS;
	int unread = 0;

	if (age_ns < LATE_STRANGER_NS && !ioctl(client->fd, FIONREAD, &unread) && unread > 0)
		least_ns = LATE_STRANGER_NS;
	return age_ns < least_ns ? least_ns - age_ns : 0;
}

/* Evicts the oldest connection that may be. Returns the time until one may be; 0: there is room. */
static uint64_t try_make_room(struct clients *c)
{
	uint64_t now_ns = clock_monotonic_ns(), left_ns = 0;
	struct client *client;

	pthread_mutex_lock(&c->lock);
	TAILQ_FOREACH(client, &c->list, link)
	{
		uint64_t ns;

		if (c->strangers < c->max_strangers)
			break;
		if (client->trusted || client->closed)
			continue;
		ns = ns_to_eviction(client, now_ns);
		if (!ns)
			shut_client(client);
		else if (!left_ns || ns < left_ns)
			left_ns = ns;
	}
	if (c->strangers < c->max_strangers)
		left_ns = 0;
	pthread_mutex_unlock(&c->lock);
	return left_ns;
}

/* Runs on the accepting thread. */
static void make_room(struct clients *c)
{
	uint64_t left_ns;

	while ((left_ns = try_make_room(c)) > 0)
		nanosleep(&(struct timespec){ .tv_nsec = (long)left_ns }, NULL);
}

static void begin_connection(struct clients *c, struct MHD_Connection *connection,
			     void **socket_context)
{
	struct client *client = calloc(1, sizeof(*client));
	int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);

	*socket_context = client;
	if (!client) {
		shutdown(fd, SHUT_RDWR);
		return;
	}
	client->all = c;
	client->fd = fd;
	/* only the owner of the directory can connect to the unix socket */
	client->trusted = getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
			  address.ss_family == AF_UNIX;
	if (!client->trusted)
		make_room(c);
	client->began_ns = clock_monotonic_ns();
	client->deadline_ns = client->began_ns + (client->trusted ? c->timeout_ns : c->stranger_ns);
	pthread_mutex_lock(&c->lock);
	c->strangers += !client->trusted;
	TAILQ_INSERT_TAIL(&c->list, client, link);
	pthread_mutex_unlock(&c->lock);
}

void clients_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
		    enum MHD_ConnectionNotificationCode what)
{
	struct clients *c = cls;
	struct client *client = *socket_context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		begin_connection(c, connection, socket_context);
	} else if (client) {
		pthread_mutex_lock(&c->lock);
		TAILQ_REMOVE(&c->list, client, link);
		if (!client->trusted && !client->closed)
			c->strangers--;
		pthread_mutex_unlock(&c->lock);
		free(client);
	}
}

struct client *client_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
		->socket_context;
}

void client_trust(struct client *client)
{
	pthread_mutex_lock(&client->all->lock);
	if (!client->trusted && !client->closed)
		client->all->strangers--;
	client->trusted = true;
	pthread_mutex_unlock(&client->all->lock);
}

bool client_is_trusted(struct client *client)
{
	bool trusted;

	pthread_mutex_lock(&client->all->lock);
	trusted = client->trusted;
	pthread_mutex_unlock(&client->all->lock);
	return trusted;
}

void client_sends(struct client *client, size_t bytes)
{
	pthread_mutex_lock(&client->all->lock);
	if (client->trusted) {
		if (!client->body_ns)
			client->body_ns = clock_monotonic_ns();
		client->body_bytes += bytes;
		client->deadline_ns = client->body_ns + client->all->timeout_ns +
				      client->body_bytes * NSEC_PER_SEC / MIN_BYTES_PER_SECOND;
	}
	pthread_mutex_unlock(&client->all->lock);
}

static void set_deadline(struct client *client, uint64_t deadline_ns, const char *query_id)
{
	pthread_mutex_lock(&client->all->lock);
	if (client->trusted)
		client->deadline_ns = deadline_ns;
	client->body_ns = client->body_bytes = 0;
	client->gone_ticks = 0;
	snprintf(client->query_id, sizeof(client->query_id), "%s", query_id);
	pthread_mutex_unlock(&client->all->lock);
}

void client_waits(struct client *client)
{
	set_deadline(client, 0, "");
}

void client_done(struct client *client)
{
	set_deadline(client, clock_monotonic_ns() + client->all->timeout_ns, "");
}

void client_asks(struct client *client, const char *id)
{
	set_deadline(client, 0, id);
}
