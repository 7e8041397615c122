// SPDX-License-Identifier: Apache-2.0
/*
 * Counters as findings: from a running agent's /metrics, or the last hour of ebpf_agent. Both give
 * (tracker, name, number) with the names of agent_count_list.
 */
#include "commands/doctor/counts.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <string.h>

#include "clickhouse/exceptions.h"
#include "agent/subjects.h"
#include "base/buffer.h"
#include "base/util.h"
#include "commands/database.h"
#include "commands/doctor/agents.h"
#include "commands/doctor/report.h"

enum { MAX_REPLY = 1 << 20, TIMEOUT_SECONDS = 5 };

static char *agent;
static const struct option options[] = {
	{ .key = "agent",
	  .type = OPTION_STRING,
	  .target = &agent,
	  .arg = "HOST:PORT",
	  .help = "read the counts of a running agent (address: metrics.listen)" },
};
const struct option_table doctor_counts_options = { options, ARRAY_SIZE(options) };

struct finding {
	char tracker[32];
	bool dead; /* the agent runs without this tracker */
	struct agent_counts counts;
};

struct findings {
	struct finding items[MAX_SUBJECTS + MAX_TRACKERS];
	size_t n;
	bool has_state; /* of a running agent only: */
	bool delivery_failing, spool_degraded;
	double oldest_row_seconds;
};

/* Advice for losses, by counter name. */
static const struct {
	const char *name, *advice;
} advices[] = {
	{ "lost_ring",
	  "the agent had too little CPU for the events: raise CPUQuota, raise the tracker's "
	  "min_duration_us, or lower governor.cpu_percent" },
	{ "lost_state",
	  "many: more threads, processes or sockets at once than there is room for; a few: waits "
	  "that the governor interrupted, or whose end the kernel did not show" },
	{ "bad_event", "agent and BPF objects are of different builds" },
	{ "dropped_memory",
	  "the database takes rows too slowly: see the log; use spool.directory, or raise "
	  "memory_bytes" },
	{ "dropped_spool", "the database was away too long for spool.max_bytes or spool.max_age" },
	{ "dropped_corrupt", "the disk of spool.directory lost data" },
	{ "dropped_refused", "the tables differ from the schema: run `underspan schema --apply`" },
	{ "lost_crash", "the agent was killed: see the service manager's log" },
};

bool doctor_counts_wanted(void)
{
	return agent || clickhouse_config.clickhouse || clickhouse_config.store;
}

static struct finding *finding_of(struct findings *all, const char *tracker)
{
	for (size_t i = 0; i < all->n; i++) {
		if (!strcmp(all->items[i].tracker, tracker))
			return &all->items[i];
	}
	if (all->n == ARRAY_SIZE(all->items))
		return NULL;
	snprintf(all->items[all->n].tracker, sizeof(all->items[0].tracker), "%s", tracker);
	return &all->items[all->n++];
}

static void put_finding(struct findings *all, const char *tracker, const char *name, uint64_t value)
{
	struct finding *finding = finding_of(all, tracker);

	for (size_t i = 0; finding && i < N_AGENT_COUNTS; i++) {
		if (!strcmp(agent_count_list[i].name, name))
			*(uint64_t *)((char *)&finding->counts +
				      agent_count_list[i].offset) = value;
	}
}

/* ---- a running agent ---- */

/* underspan_delivery_failing 1 */
static void read_state(struct findings *all, const char *name, double value)
{
	if (!strcmp(name, "delivery_failing")) {
		all->has_state = true;
		all->delivery_failing = value != 0;
	} else if (!strcmp(name, "spool_degraded")) {
		all->spool_degraded = value != 0;
	} else if (!strcmp(name, "oldest_row_seconds")) {
		all->oldest_row_seconds = value;
	}
}

static void put_live(struct findings *all, const char *tracker, bool live)
{
	struct finding *finding = finding_of(all, tracker);

	if (finding)
		finding->dead = !live;
}

/* underspan_seen_total{tracker="off_cpu"} 12 */
static void read_line(struct findings *all, const char *line)
{
	char name[64], tracker[32];
	uint64_t value;
	double state;
	size_t len;

	if (sscanf(line, "underspan_%63[a-z_] %lf", name, &state) == 2)
		read_state(all, name, state);
	if (sscanf(line, "underspan_%63[a-z_]{tracker=\"%31[a-z_]\"} %" SCNu64, name, tracker,
		   &value) != 3)
		return;
	len = strlen(name);
	if (len > 6 && !strcmp(name + len - 6, "_total"))
		name[len - 6] = '\0';
	if (!strcmp(name, "tracker_live"))
		put_live(all, tracker, value);
	else
		put_finding(all, tracker, name, value);
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *to)
{
	struct buffer *b = to;

	return b->len + n > MAX_REPLY || buffer_append(b, bytes, size * n) ? 0 : n;
}

/* HOST:PORT, not a URL nor a part of one. */
static bool is_address(const char *text)
{
	const char *port = strrchr(text, ':');

	return port && port > text && !strchr(text, '/') && port[1] &&
	       strspn(port + 1, "0123456789") == strlen(port + 1);
}

static int ask_agent(struct findings *all, struct why *why)
{
	CURL *curl = curl_easy_init();
	struct buffer reply = { 0 };
	char url[300];
	CURLcode code;

	if (!curl)
		return why_fail(why, ENOMEM, "out of memory");
	if (!is_address(agent)) {
		curl_easy_cleanup(curl);
		return why_fail(why, EINVAL,
				"agent: '%.100s' is not HOST:PORT, as in 127.0.0.1:9464", agent);
	}
	snprintf(url, sizeof(url), "http://%s/metrics", agent);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_SECONDS);
	curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
	code = curl_easy_perform(curl);
	curl_easy_cleanup(curl);
	if (!code && buffer_append(&reply, "", 1))
		code = CURLE_OUT_OF_MEMORY;
	for (char *line = reply.data, *next; !code && line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		read_line(all, line);
	}
	buffer_free(&reply);
	if (!code && !all->n)
		return why_fail(why, EBADMSG,
				"what answers at %s is no agent: its /metrics have no counts of "
				"underspan",
				agent);
	if (code == CURLE_HTTP_RETURNED_ERROR)
		return why_fail(why, EBADMSG, "what answers at %s is no agent: it has no /metrics",
				agent);
	return code ? why_fail(why, EIO,
			       "no agent answers at %s: %s (start the agent with "
			       "--metrics.listen=%s)",
			       agent, curl_easy_strerror(code), agent)
		    : 0;
}

/* ---- the table ---- */

static void write_query(char *sql, size_t size)
{
	size_t len = (size_t)snprintf(sql, size, "SELECT tracker");

	for (size_t i = 0; i < N_AGENT_COUNTS; i++)
		len += (size_t)snprintf(sql + len, size - len,
					agent_count_list[i].kind == COUNT_GAUGE
						? ", argMax(%s, end_time)"
						: ", sum(%s)",
					agent_count_list[i].name);
	snprintf(sql + len, size - len,
		 " FROM ebpf_agent WHERE host = {host:String} AND end_time > now() - INTERVAL 1 "
		 "HOUR GROUP BY tracker ORDER BY tracker");
}

static void read_row(struct findings *all, char *row)
{
	char *tracker = strsep(&row, "\t");

	for (size_t i = 0; i < N_AGENT_COUNTS && row; i++)
		put_finding(all, tracker, agent_count_list[i].name,
			    strtoull(strsep(&row, "\t"), NULL, 10));
}

static int ask_clickhouse(struct findings *all, struct why *why)
{
	char sql[2048], host[256] = "", *text = NULL, *row, *rest;
	const struct clickhouse_param params[] = { { "param_host", host }, { 0 } };
	struct clickhouse_client *client = NULL;
	struct clickhouse_target target;
	struct clickhouse_reply reply = { 0 };
	size_t len;
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	gethostname(host, sizeof(host) - 1);
	write_query(sql, sizeof(sql));
	err = clickhouse_client_new(&target.endpoints[0], &client, why);
	if (!err)
		err = clickhouse_query_text(client, sql, "TabSeparated", params, &text, &len,
					    &reply, why);
	if (err && reply.exception_code == EXCEPTION_UNKNOWN_IDENTIFIER)
		why_fail(why, -err,
			 "the table ebpf_agent is of an older version and lacks some counts: run "
			 "`underspan schema --apply`");
	for (rest = text; !err && (row = strsep(&rest, "\n"));) {
		if (*row)
			read_row(all, row);
	}
	if (!err && !all->n)
		err = why_fail(why, ENOENT,
			       "no agent of host %s has written to ebpf_agent in the last hour",
			       host);
	free(text);
	if (!err)
		doctor_check_reports(client, host);
	clickhouse_client_free(client);
	clickhouse_release(&target);
	return err;
}

/* ---- findings ---- */

static const char *advice_for(const struct agent_counts *counts)
{
	uint64_t most = 0;
	const char *advice = "";

	for (size_t i = 0; i < N_AGENT_COUNTS; i++) {
		uint64_t n = agent_count_of(counts, i);

		if (agent_count_list[i].kind != COUNT_LOSS || n <= most)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(advices); k++) {
			if (!strcmp(advices[k].name, agent_count_list[i].name))
				advice = advices[k].advice;
		}
		most = n;
	}
	return advice;
}

static void report_finding(const struct finding *finding)
{
	const struct agent_counts *c = &finding->counts;
	char losses[400], lacking[400], line[900];
	int len;

	if (finding->dead) {
		doctor_say(false, finding->tracker,
			   "does not run in this agent: its log has the reason");
		return;
	}
	if (*agent_counts_list(c, COUNT_LOSS, losses, sizeof(losses))) {
		snprintf(line, sizeof(line), "%" PRIu64 " event%s seen; %s: %s", c->seen,
			 plural(c->seen), losses, advice_for(c));
		doctor_say(false, finding->tracker, line);
		return;
	}
	len = snprintf(line, sizeof(line),
		       "%" PRIu64 " event%s seen, nothing lost: %" PRIu64 " row%s, %" PRIu64
		       " left out (threshold)",
		       c->seen, plural(c->seen), c->rows, plural(c->rows), c->filtered);
	if (c->sampled)
		len += snprintf(line + len, sizeof(line) - (size_t)len,
				", %" PRIu64 " sampled out by the governor, with weights",
				c->sampled);
	if (*agent_counts_list(c, COUNT_LACK, lacking, sizeof(lacking)))
		len += snprintf(line + len, sizeof(line) - (size_t)len, "; %s", lacking);
	if (c->queued_rows)
		snprintf(line + len, sizeof(line) - (size_t)len, "; %" PRIu64 " row%s to be sent",
			 c->queued_rows, counted(c->queued_rows, " waits", "s wait"));
	doctor_say(true, finding->tracker, line);
}

static void report_delivery(const struct findings *all)
{
	char line[200];

	if (!all->has_state)
		return;
	snprintf(line, sizeof(line),
		 "the last attempt to insert failed, the oldest row waits for %.0f s: the agent's "
		 "log has the server's message",
		 all->oldest_row_seconds);
	doctor_say(!all->delivery_failing, "delivery",
		   all->delivery_failing ? line : "no insert fails");
	if (all->spool_degraded)
		doctor_say(false, "spool",
			   "spool.directory cannot be written to, rows are kept in memory: the "
			   "agent's log has the reason");
}

void doctor_counts_check(void)
{
	static struct findings all;
	struct why why;

	doctor_section("%s",
		       agent ? "the running agent, since start" : "the agent, in the last hour");
	if (agent ? ask_agent(&all, &why) : ask_clickhouse(&all, &why))
		doctor_say(false, "counts", why.text);
	for (size_t i = 0; i < all.n; i++)
		report_finding(&all.items[i]);
	report_delivery(&all);
}
