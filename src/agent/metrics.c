// SPDX-License-Identifier: Apache-2.0
/* Prometheus metrics and health checks. See metrics.h. */
#include "agent/metrics.h"

#include <inttypes.h>
#include <bpf/libbpf.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

#include "base/listen.h"
#include "base/log.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "process/processes.h"
#include "base/version.h"

enum { MAX_CONNECTIONS = 32, TIMEOUT_SECONDS = 5, CONNECTION_MEMORY = 16 << 10 };

static char *address;
static bool listen_anywhere;
static uint64_t stuck_after_ns = 300 * NSEC_PER_SEC;
static const struct option options[] = {
	{ .key = "metrics.listen",
	  .type = OPTION_STRING,
	  .target = &address,
	  .arg = "HOST:PORT",
	  .help = "serve the agent's own counts at /metrics, for Prometheus, with /healthz and "
		  "/livez",
	  .otherwise = "nowhere" },
	{ .key = "metrics.listen_anywhere",
	  .type = OPTION_BOOL,
	  .target = &listen_anywhere,
	  .help = "allow a metrics.listen address other than loopback" },
	{ .key = "metrics.stuck_after",
	  .type = OPTION_SECONDS,
	  .target = &stuck_after_ns,
	  .arg = "S",
	  .help = "/healthz answers 503 when the oldest row has waited this long and no insert "
		  "succeeds",
	  .min = 1,
	  .max = 7 * 86400,
	  .reloadable = true },
};
const struct option_table metrics_options = { options, ARRAY_SIZE(options), "Metrics" };

static struct MHD_Daemon *daemon_;
static const struct subjects *subjects;

/* ---- the page ---- */

static void buffer_add_text(struct buffer *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void buffer_add_text(struct buffer *b, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n > 0 && n < (int)sizeof(line))
		buffer_append(b, line, (size_t)n);
}

static void add_head(struct buffer *b, const char *name, const char *type, const char *what)
{
	buffer_add_text(b, "# HELP underspan_%s %s\n# TYPE underspan_%s %s\n", name, what, name,
			type);
}

static void add_one(struct buffer *b, const char *name, const char *type, const char *what,
		    double value)
{
	add_head(b, name, type, what);
	buffer_add_text(b, "underspan_%s %.15g\n", name, value);
}

/* Prometheus requires base units as suffix: bpf_ns becomes bpf_seconds_total. */
static void name_metric(const struct agent_count *count, char *buf, size_t size)
{
	const char *total = count->kind == COUNT_GAUGE ? "" : "_total";
	size_t len = strlen(count->name);

	if (len > 3 && !strcmp(count->name + len - 3, "_ns"))
		snprintf(buf, size, "%.*s_seconds%s", (int)len - 3, count->name, total);
	else if (!strcmp(count->name, "bytes_sent"))
		snprintf(buf, size, "sent_bytes%s", total);
	else
		snprintf(buf, size, "%s%s", count->name, total);
}

/* Names are stems and need no escaping. */
static void add_counts(struct buffer *b)
{
	struct agent_counts counts[MAX_SUBJECTS];

	for (size_t i = 0; i < subjects->n; i++)
		subjects_read(subjects, i, &counts[i]);
	for (size_t k = 0; k < N_AGENT_COUNTS; k++) {
		const struct agent_count *count = &agent_count_list[k];
		double unit = strstr(count->name, "_ns") ? 1e-9 : 1;
		char name[64];

		name_metric(count, name, sizeof(name));
		add_head(b, name, count->kind == COUNT_GAUGE ? "gauge" : "counter", count->what);
		for (size_t i = 0; i < subjects->n; i++)
			buffer_add_text(b, "underspan_%s{tracker=\"%s\"} %.17g\n", name,
					subjects->items[i].name,
					(double)agent_count_of(&counts[i], k) * unit);
	}
}

static void add_trackers(struct buffer *b)
{
	const struct tracker_set *set = subjects->set;

	add_head(b, "tracker_live", "gauge", "1: the tracker runs on this host");
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			buffer_add_text(b, "underspan_tracker_live{tracker=\"%s\"} 1\n",
					set->items[i].tracker->name);
	}
	for (size_t i = 0; i < set->n_refused; i++)
		buffer_add_text(b, "underspan_tracker_live{tracker=\"%s\"} 0\n",
				set->refused[i].tracker->name);
}

static void add_state(struct buffer *b)
{
	struct pipeline_state state;

	pipeline_read_state(subjects->pipeline, &state);
	add_one(b, "python_processes", "gauge", "watched processes", (double)processes_count());
	add_one(b, "memory_bytes", "gauge", "rows in memory", (double)state.memory_bytes);
	add_one(b, "spool_bytes", "gauge", "in the spool", (double)state.spool_bytes);
	add_one(b, "spool_files", "gauge", "batches in the spool", (double)state.spool_files);
	add_one(b, "spool_corrupt_files", "gauge", "set aside", (double)state.corrupt_files);
	add_one(b, "spool_degraded", "gauge", "1: the spool cannot be written to",
		state.spool_degraded);
	add_one(b, "delivery_failing", "gauge", "1: the last attempt to insert failed",
		state.delivery_failing);
	add_one(b, "oldest_row_seconds", "gauge", "age of the oldest undelivered row",
		(double)state.oldest_ns / 1e9);
	add_one(b, "process_cpu_seconds_total", "counter", "CPU time of the agent since its start",
		(double)clock_process_cpu_ns() / 1e9);
}

static void write_page(struct buffer *b)
{
	add_head(b, "build_info", "gauge",
		 "always 1; labels: the versions the agent was built with");
	buffer_add_text(b, "underspan_build_info{version=\"%s\",libbpf=\"%u.%u\"} 1\n",
			UNDERSPAN_VERSION, libbpf_major_version(), libbpf_minor_version());
	add_trackers(b);
	add_counts(b);
	add_state(b);
}

/* ---- health ---- */

/*
 * An answer proves that the collector's loop runs. /livez ignores delivery: an unreachable database
 * is no reason to restart the agent. Returns the HTTP status, with the reason in `b`.
 */
static unsigned int write_health(struct buffer *b, bool with_delivery)
{
	const struct tracker_set *set = subjects->set;
	struct pipeline_state state;
	size_t live = 0;

	for (size_t i = 0; i < set->n; i++)
		live += !set->items[i].dead;
	pipeline_read_state(subjects->pipeline, &state);
	if (!live) {
		buffer_add_text(b, "no tracker runs: the log says why\n");
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	if (with_delivery && state.delivery_failing && state.oldest_ns > stuck_after_ns) {
		buffer_add_text(
			b,
			"delivery is stuck: no insert succeeds, the oldest row waits for %.0f s\n",
			(double)state.oldest_ns / 1e9);
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	buffer_add_text(b, "ok\n");
	return MHD_HTTP_OK;
}

/* ---- HTTP ---- */

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned int status,
				     struct buffer *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(body->len, body->data,
									MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result = MHD_NO;

	if (!response) {
		buffer_free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type",
				"text/plain; version=0.0.4; charset=utf-8");
	/* one request per connection: see end_slow_connections() */
	MHD_add_response_header(response, "Connection", "close");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result handle_request(void *cls, struct MHD_Connection *connection, const char *url,
				      const char *method, const char *version, const char *upload,
				      size_t *upload_size, void **request)
{
	unsigned int status = MHD_HTTP_OK;
	struct buffer body = { 0 };

	(void)cls;
	(void)version;
	(void)upload;
	if (*upload_size) /* bodies are not accepted: closes the connection */
		return MHD_NO;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		buffer_add_text(&body, "only GET and HEAD\n");
		return send_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, &body);
	}
	if (!*request) { /* first call: headers only; the answer is sent in the next call */
		*request = &subjects;
		return MHD_YES;
	}
	if (!strcmp(url, "/metrics")) {
		write_page(&body);
	} else if (!strcmp(url, "/healthz") || !strcmp(url, "/livez")) {
		status = write_health(&body, !strcmp(url, "/healthz"));
	} else {
		buffer_add_text(&body, "there are only /metrics, /healthz and /livez\n");
		status = MHD_HTTP_NOT_FOUND;
	}
	return send_response(connection, status, &body);
}

/* ---- connections ---- */

static struct {
	int fd;
	uint64_t since_ns; /* 0: free */
} connections[MAX_CONNECTIONS];

static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
			  enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	(void)cls;
	(void)socket_context;
	for (size_t i = 0; info && i < ARRAY_SIZE(connections); i++) {
		bool mine = connections[i].since_ns && connections[i].fd == info->connect_fd;

		if (what == MHD_CONNECTION_NOTIFY_CLOSED && mine) {
			connections[i].since_ns = 0;
		} else if (what == MHD_CONNECTION_NOTIFY_STARTED && !connections[i].since_ns) {
			connections[i].fd = info->connect_fd;
			connections[i].since_ns = clock_monotonic_ns();
			return;
		}
	}
}

/* libmicrohttpd restarts its time-out with each byte: closes slow connections. */
static void end_slow_connections(void)
{
	uint64_t now = clock_monotonic_ns();

	for (size_t i = 0; i < ARRAY_SIZE(connections); i++) {
		if (connections[i].since_ns &&
		    now - connections[i].since_ns > TIMEOUT_SECONDS * NSEC_PER_SEC)
			shutdown(connections[i].fd, SHUT_RDWR);
	}
}

/* ---- start and stop ---- */

int metrics_start(const struct subjects *from, struct why *why)
{
	int fd, err;

	if (!address)
		return 0;
	err = listen_open("metrics.listen", address, listen_anywhere, &fd, why);
	if (err)
		return err;
	subjects = from;
	daemon_ = MHD_start_daemon(
		MHD_USE_EPOLL, 0, NULL, NULL, handle_request, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned int)TIMEOUT_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY, MHD_OPTION_END);
	if (!daemon_) {
		close(fd);
		return why_fail(why, EIO, "metrics.listen: microhttpd cannot serve %s", address);
	}
	return 0;
}

int metrics_fd(void)
{
	const union MHD_DaemonInfo *info = daemon_ ? MHD_get_daemon_info(daemon_,
									 MHD_DAEMON_INFO_EPOLL_FD)
						   : NULL;

	return info ? info->epoll_fd : -1;
}

void metrics_run(void)
{
	if (!daemon_)
		return;
	end_slow_connections();
	MHD_run(daemon_);
}

void metrics_stop(void)
{
	if (daemon_)
		MHD_stop_daemon(daemon_);
	daemon_ = NULL;
}
