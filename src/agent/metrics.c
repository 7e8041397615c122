// SPDX-License-Identifier: Apache-2.0
/* Prometheus metrics and health checks. See metrics.h. */
#include "agent/metrics.h"

#include <inttypes.h>
#include <bpf/libbpf.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"
#include "base/listen.h"
#include "base/log.h"
#include "base/buffer.h"
#include "base/exposition.h"
#include "base/clock.h"
#include "process/processes.h"
#include "base/version.h"

enum { MAX_CONNECTIONS = 32, TIMEOUT_SECONDS = 5, CONNECTION_MEMORY = 16 << 10 };
#define CROWDED_TIMEOUT_NS (250 * NSEC_PER_MSEC)

static char *address;
static bool listen_anywhere;
static uint64_t stuck_after_ns = 300 * NSEC_PER_SEC;
static const struct option options[] = {
	{ .key = "metrics.listen",
	  .type = OPTION_STRING,
	  .target = &address,
	  .arg = "HOST:PORT",
	  .help = "serve requests by service and the agent's own counts at /metrics, for "
		  "Prometheus, with /healthz and /livez",
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

static void add_one(struct exposition *e, struct metric_family family, struct metric_value value)
{
	exposition_head(e, &family);
	exposition_sample(e, "", value);
}

/* Prometheus requires base units as suffix: bpf_ns becomes bpf_seconds_total. */
static struct metric_family family_of(const struct agent_count *count, char *name, size_t size)
{
	struct metric_family family = {
		.name = name,
		.type = count->kind == COUNT_GAUGE ? METRIC_GAUGE : METRIC_COUNTER,
		.help = count->what,
	};
	size_t len = strlen(count->name);

	snprintf(name, size, "%s", count->name);
	if (len > 3 && !strcmp(count->name + len - 3, "_ns")) {
		snprintf(name, size, "%.*s_seconds", (int)len - 3, count->name);
		family.unit = "seconds";
	} else if (!strcmp(count->name, "bytes_sent")) {
		snprintf(name, size, "sent_bytes");
		family.unit = "bytes";
	}
	return family;
}

/* Of the subjects of which it is measured; where it is of none, the whole family is absent. */
static void add_count(struct exposition *e, const struct agent_counts *counts, size_t k)
{
	char name[64];
	struct metric_family family = family_of(&agent_count_list[k], name, sizeof(name));
	bool is_ns = family.unit && !strcmp(family.unit, "seconds"), any = false;

	for (size_t i = 0; i < subjects->n; i++) {
		char labels[64] = "";

		if (!subjects_measure(subjects, i, agent_count_list[k].name))
			continue;
		if (!any)
			exposition_head(e, &family);
		any = true;
		exposition_label(labels, sizeof(labels), "tracker", subjects->items[i].name);
		exposition_sample(e, labels,
				  (struct metric_value){ agent_count_of(&counts[i], k), is_ns });
	}
}

static void add_counts(struct exposition *e)
{
	struct agent_counts counts[MAX_SUBJECTS];

	for (size_t i = 0; i < subjects->n; i++)
		subjects_read(subjects, i, &counts[i]);
	for (size_t k = 0; k < N_AGENT_COUNTS; k++)
		add_count(e, counts, k);
}

static void add_tracker(struct exposition *e, const struct tracker *tracker, bool live)
{
	char labels[64] = "";

	exposition_label(labels, sizeof(labels), "tracker", tracker->name);
	exposition_sample(e, labels, METRIC_NUMBER(live));
}

static void add_trackers(struct exposition *e)
{
	static const struct metric_family family = { "tracker_live", METRIC_GAUGE, NULL,
						     "1: the tracker runs on this host" };
	const struct tracker_set *set = subjects->set;

	exposition_head(e, &family);
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			add_tracker(e, set->items[i].tracker, true);
	}
	for (size_t i = 0; i < set->n_refused; i++)
		add_tracker(e, set->refused[i].tracker, false);
}

#define GAUGE(name, unit, help)	  ((struct metric_family){ name, METRIC_GAUGE, unit, help })
#define COUNTER(name, unit, help) ((struct metric_family){ name, METRIC_COUNTER, unit, help })

static void add_state(struct exposition *e)
{
	struct pipeline_state state;

	pipeline_read_state(subjects->pipeline, &state);
	add_one(e, GAUGE("python_processes", NULL, "watched processes"),
		METRIC_NUMBER(processes_count()));
	add_one(e, GAUGE("memory_bytes", "bytes", "rows in memory"),
		METRIC_NUMBER(state.memory_bytes));
	add_one(e, GAUGE("spool_bytes", "bytes", "in the spool"), METRIC_NUMBER(state.spool_bytes));
	add_one(e, GAUGE("spool_files", NULL, "batches in the spool"),
		METRIC_NUMBER(state.spool_files));
	add_one(e, GAUGE("spool_corrupt_files", NULL, "set aside"),
		METRIC_NUMBER(state.corrupt_files));
	add_one(e, GAUGE("spool_degraded", NULL, "1: the spool cannot be written to"),
		METRIC_NUMBER(state.spool_degraded));
	add_one(e, GAUGE("delivery_failing", NULL, "1: the last attempt to insert failed"),
		METRIC_NUMBER(state.delivery_failing));
	add_one(e, GAUGE("oldest_row_seconds", "seconds", "age of the oldest undelivered row"),
		METRIC_TIME(state.oldest_ns));
	add_one(e,
		COUNTER("process_cpu_seconds", "seconds", "CPU time of the agent since its start"),
		METRIC_TIME(clock_process_cpu_ns()));
}

static void add_build(struct exposition *e)
{
	char labels[128] = "", libbpf[24];

	snprintf(libbpf, sizeof(libbpf), "%u.%u", libbpf_major_version(), libbpf_minor_version());
	exposition_label(labels, sizeof(labels), "version", UNDERSPAN_VERSION);
	exposition_label(labels, sizeof(labels), "libbpf", libbpf);
	exposition_head(e, &GAUGE("build_info", NULL,
				  "always 1; labels: the versions the agent was built with"));
	exposition_sample(e, labels, METRIC_NUMBER(1));
}

static struct buffer write_page(bool open_metrics)
{
	const struct tracker_set *set = subjects->set;
	struct exposition e = { .open_metrics = open_metrics };

	add_build(&e);
	add_trackers(&e);
	add_counts(&e);
	add_state(&e);
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead && set->items[i].tracker->expose)
			set->items[i].tracker->expose(&e);
	}
	exposition_end(&e);
	return e.to;
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
		text_append(b, "no tracker runs: the log says why\n");
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	if (with_delivery && state.delivery_failing && state.oldest_ns > stuck_after_ns) {
		text_append(
			b,
			"delivery is stuck: no insert succeeds, the oldest row waits for %.0f s\n",
			(double)state.oldest_ns / 1e9);
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	text_append(b, "ok\n");
	return MHD_HTTP_OK;
}

/* ---- HTTP ---- */

static const char text_type[] = "text/plain; version=0.0.4; charset=utf-8";
static const char open_metrics_type[] =
	"application/openmetrics-text; version=1.0.0; charset=utf-8";

/* Prometheus asks for OpenMetrics first, further clients for the formats known to the client. */
static bool wants_open_metrics(struct MHD_Connection *connection)
{
	const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");

	return accept && strstr(accept, "application/openmetrics-text");
}

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned int status,
				     const char *type, struct buffer *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(body->len, body->data,
									MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result = MHD_NO;

	if (!response) {
		buffer_free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type", type);
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
	const char *type = text_type;
	unsigned int status = MHD_HTTP_OK;
	struct buffer body = { 0 };

	(void)cls;
	(void)version;
	(void)upload;
	if (*upload_size) /* bodies are not accepted: closes the connection */
		return MHD_NO;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		text_append(&body, "only GET and HEAD\n");
		return send_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, type, &body);
	}
	if (!*request) { /* first call: headers only; the answer is sent in the next call */
		*request = &subjects;
		return MHD_YES;
	}
	if (!strcmp(url, "/metrics")) {
		if (wants_open_metrics(connection))
			type = open_metrics_type;
		body = write_page(type == open_metrics_type);
	} else if (!strcmp(url, "/healthz") || !strcmp(url, "/livez")) {
		status = write_health(&body, !strcmp(url, "/healthz"));
	} else {
		text_append(&body, "there are only /metrics, /healthz and /livez\n");
		status = MHD_HTTP_NOT_FOUND;
	}
	return send_response(connection, status, type, &body);
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

static bool all_connections_used(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(connections); i++) {
		if (!connections[i].since_ns)
			return false;
	}
	return true;
}

/*
 * libmicrohttpd restarts the time-out with each byte: closes slow connections. Where there are too
 * many, a probe of the kubelet waits behind them: a client in order needs some milliseconds.
 */
static void end_slow_connections(void)
{
	uint64_t now = clock_monotonic_ns();
	uint64_t limit = all_connections_used() ? CROWDED_TIMEOUT_NS
						: TIMEOUT_SECONDS * NSEC_PER_SEC;

	for (size_t i = 0; i < ARRAY_SIZE(connections); i++) {
		if (connections[i].since_ns && now - connections[i].since_ns > limit)
			shutdown(connections[i].fd, SHUT_RDWR);
	}
}

/* ---- start and stop ---- */

int metrics_check(struct why *why)
{
	return address ? listen_check("metrics.listen", address, listen_anywhere, why) : 0;
}

int metrics_start(const struct subjects *from, struct why *why)
{
	int fd, err;

	if (!address)
		return 0;
	err = listen_open("metrics.listen", address, listen_anywhere, &fd, why);
	if (err)
		return err;
	subjects = from;
	exposition_served = true;
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

/* At the limit libmicrohttpd does not listen: the run after the closing does again. */
void metrics_tick(void)
{
	if (!daemon_ || !all_connections_used())
		return;
	metrics_run();
	MHD_run(daemon_);
}

void metrics_stop(void)
{
	if (daemon_)
		MHD_stop_daemon(daemon_);
	daemon_ = NULL;
}
