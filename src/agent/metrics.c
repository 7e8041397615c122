// SPDX-License-Identifier: Apache-2.0
/* The agent's counts for Prometheus. See metrics.h. */
#include "agent/metrics.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <string.h>
#include <time.h>

#include "listen.h"
#include "log.h"
#include "pipeline/buffer.h"
#include "probe/clock.h"
#include "probe/processes.h"
#include "version.h"

enum { MAX_CONNECTIONS = 8, TIMEOUT_SECONDS = 5, CONNECTION_MEMORY = 16 << 10 };

static char *address;
static bool anywhere;
static const struct option options[] = {
	{ .key = "metrics.listen",
	  .type = OPTION_STRING,
	  .target = &address,
	  .arg = "HOST:PORT",
	  .help = "serve the agent's own counts at /metrics, for Prometheus (default: not at all)" },
	{ .key = "metrics.listen_anywhere",
	  .type = OPTION_BOOL,
	  .target = &anywhere,
	  .help = "allow an address for metrics.listen that is not loopback" },
};
const struct option_table metrics_options = { options, ARRAY_SIZE(options) };

static struct MHD_Daemon *daemon_;
static const struct subjects *subjects;

/* ---- the page ---- */

static void add(struct buffer *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add(struct buffer *b, const char *fmt, ...)
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

static void add_one(struct buffer *b, const char *name, const char *what, double value)
{
	add(b, "# HELP underspan_%s %s\n# TYPE underspan_%s gauge\nunderspan_%s %.15g\n", name,
	    what, name, name, value);
}

/* Names of ours need no escaping: they are stems. */
static void add_counts(struct buffer *b)
{
	struct agent_counts counts[MAX_SUBJECTS];

	for (size_t i = 0; i < subjects->n; i++)
		subjects_read(subjects, i, &counts[i]);
	for (size_t k = 0; k < N_AGENT_COUNTS; k++) {
		const struct agent_count *count = &agent_count_list[k];
		bool gauge = count->kind == COUNT_GAUGE;
		const char *total = gauge ? "" : "_total";

		add(b, "# HELP underspan_%s%s %s\n# TYPE underspan_%s%s %s\n", count->name, total,
		    count->what, count->name, total, gauge ? "gauge" : "counter");
		for (size_t i = 0; i < subjects->n; i++)
			add(b, "underspan_%s%s{tracker=\"%s\"} %" PRIu64 "\n", count->name, total,
			    subjects->items[i].name, agent_count_of(&counts[i], k));
	}
}

static void add_trackers(struct buffer *b)
{
	const struct tracker_set *set = subjects->set;

	add(b, "# HELP underspan_tracker_live whether it runs on this host\n"
	       "# TYPE underspan_tracker_live gauge\n");
	for (size_t i = 0; i < set->n; i++) {
		if (!set->items[i].dead)
			add(b, "underspan_tracker_live{tracker=\"%s\"} 1\n",
			    set->items[i].tracker->name);
	}
	for (size_t i = 0; i < set->n_refused; i++)
		add(b, "underspan_tracker_live{tracker=\"%s\"} 0\n", set->refused[i].tracker->name);
}

static void add_state(struct buffer *b)
{
	struct pipeline_state state;

	pipeline_read_state(subjects->pipeline, &state);
	add_one(b, "python_processes", "processes that are watched", (double)processes_count());
	add_one(b, "memory_bytes", "rows in memory", (double)state.memory_bytes);
	add_one(b, "spool_bytes", "in the spool", (double)state.spool_bytes);
	add_one(b, "spool_files", "batches in the spool", (double)state.spool_files);
	add_one(b, "spool_corrupt_files", "set aside", (double)state.corrupt_files);
	add_one(b, "spool_degraded", "1: the spool cannot be written to", state.spool_degraded);
	add_one(b, "delivery_failing", "1: the last attempt to insert failed",
		state.delivery_failing);
	add_one(b, "oldest_row_seconds", "age of the oldest row that is not delivered",
		(double)state.oldest_ns / 1e9);
	add_one(b, "process_cpu_seconds", "CPU time of the agent since its start",
		(double)clock_process_cpu_ns() / 1e9);
}

static void write_page(struct buffer *b)
{
	add(b,
	    "# HELP underspan_info the agent's version\n# TYPE underspan_info gauge\n"
	    "underspan_info{version=\"%s\"} 1\n",
	    UNDERSPAN_VERSION);
	add_trackers(b);
	add_counts(b);
	add_state(b);
}

/* ---- HTTP ---- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int status,
			      struct buffer *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(body->len, body->data,
									MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result = MHD_NO;

	if (!response) {
		buffer_free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **request)
{
	struct buffer body = { 0 };
	bool known = !strcmp(url, "/metrics");

	(void)cls;
	(void)version;
	(void)upload;
	if (!*request) { /* its headers; the answer is for the call after them */
		*request = &subjects;
		return MHD_YES;
	}
	if (*upload_size) { /* nobody reads what is sent along */
		*upload_size = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") != 0) {
		add(&body, "only GET\n");
		return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, &body);
	}
	if (known)
		write_page(&body);
	else
		add(&body, "there is only /metrics\n");
	return answer(connection, known ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, &body);
}

/* ---- life ---- */

int metrics_start(const struct subjects *from, struct why *why)
{
	int fd, err;

	if (!address)
		return 0;
	err = listen_open("metrics.listen", address, anywhere, &fd, why);
	if (err)
		return err;
	subjects = from;
	daemon_ = MHD_start_daemon(
		MHD_USE_EPOLL, 0, NULL, NULL, handle, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)MAX_CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)TIMEOUT_SECONDS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
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
	if (daemon_)
		MHD_run(daemon_);
}

void metrics_stop(void)
{
	if (daemon_)
		MHD_stop_daemon(daemon_);
	daemon_ = NULL;
}
