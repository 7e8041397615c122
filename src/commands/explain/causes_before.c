// SPDX-License-Identifier: Apache-2.0
/* Causes of the time before the handler: queues, the pool, a late client. See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/causes.h"
#include "commands/explain/connections.h"
#include "commands/explain/timeline.h"

/* The interval of `list`, by begin, that covers most of [from, to), with the time that any covers.
 */
static const json_t *longest_of(const json_t *list, int64_t from_us, int64_t to_us, double *ret_ms)
{
	const json_t *item, *longest = NULL;
	int64_t sum = 0, most = 0, end_us = from_us;
	size_t i;

	json_array_foreach (list, i, item) {
		int64_t us = explain_overlap_us(item, from_us, to_us);

		if (us <= 0)
			continue;
		longest = us > most ? item : longest;
		most = us > most ? us : most;
		us = explain_overlap_us(item, end_us, to_us);
		if (us > 0) {
			sum += us;
			end_us = explain_number(item, "end_us");
		}
	}
	*ret_ms = (double)sum / 1000;
	return longest;
}

/* Longest wait for the GIL in [from, to) of a thread that accepts or was to read: kept.sql. */
static const json_t *longest_kept(const json_t *r, int64_t from_us, int64_t to_us, double *ret_ms)
{
	return longest_of(json_object_get(r, "kept"), from_us, to_us, ret_ms);
}

/* The collection that covers most of [from, to), with the time of all. */
static const json_t *longest_gc(const json_t *r, int64_t from_us, int64_t to_us, double *ret_ms)
{
	return longest_of(json_object_get(r, "gc"), from_us, to_us, ret_ms);
}

/* Reports collections that stopped the process, so also the accepting thread, half of [from, to) or
 * more. */
static bool kept_by_gc(const json_t *r, struct cause *c, int64_t from_us, int64_t to_us,
		       const char *what)
{
	double ms;
	const json_t *gc = longest_gc(r, from_us, to_us, &ms);

	if (ms * 2 < c->ms)
		return false;
	c->name = "gc_before";
	SAY(c, "%s: garbage collections stopped the process %.1f ms of that", what, ms);
	cause_add_collection(c, gc);
	FIX(c, "%s", CAUSE_FIX_GC);
	return true;
}

/* The same of a CPU quota. */
static bool kept_by_quota(const json_t *r, struct cause *c, int64_t from_us, int64_t to_us,
			  const char *what)
{
	struct quota quota = cause_quota_in(r, from_us, to_us);

	if (!cause_is_quota(&quota, c->ms))
		return false;
	c->name = "cpu_limit_before";
	SAY(c, "%s: ", what);
	cause_add_quota(c, "", &quota);
	FIX(c, "%s", CAUSE_FIX_QUOTA);
	return true;
}

/* Reports a quota, unless other requests, which may sleep, had all threads (`busy`: threads.sql).
 */
static bool kept_by_quota_alone(const json_t *r, const json_t *busy, struct cause *c,
				int64_t from_us, int64_t to_us, const char *what)
{
	return !explain_number(busy, "all_busy") && kept_by_quota(r, c, from_us, to_us, what);
}

/* A loop that a quota kept from its poll's end has no stall. */
static bool loop_kept_stopped(const json_t *r, struct cause *c, int64_t from_us, int64_t to_us,
			      const char *what)
{
	return kept_by_gc(r, c, from_us, to_us, what) ||
	       (!cause_has_stall(r, "from_us", "handled_us", NULL) &&
		kept_by_quota(r, c, from_us, to_us, what));
}

/*
 * Reports a collection, or a thread that waited for the GIL most of [from, to): one that only
 * accepts connections, or the request's own thread, on its way to read the request.
 */
static bool kept_by_gil(const json_t *r, struct cause *c, int64_t from_us, int64_t to_us,
			const char *what)
{
	double ms;
	const json_t *wait = longest_kept(r, from_us, to_us, &ms);
	const char *place = explain_text(wait, "place");

	if (kept_by_gc(r, c, from_us, to_us, what))
		return true;
	if (ms * 2 < c->ms)
		return false;
	c->name = "gil_before";
	SAY(c, "%s: thread %.60s, which %s, waited for the GIL %.1f ms of that%s", what,
	    thread_label(wait, "tid", "thread_name").text,
	    explain_number(wait, "tid") == explain_number(r, "tid") ? "was to read it"
								    : "accepts connections",
	    ms, explain_number(wait, "by_tid") ? "" : "; the holder is not known");
	if (!explain_number(wait, "by_tid"))
		return true;
	snprintf(c->said + strlen(c->said), sizeof(c->said) - strlen(c->said),
		 "; the longest holder was thread %.60s%s%.200s",
		 thread_label(wait, "by_tid", "by_name").text, *place ? ", in " : "", place);
	FIX(c, "%s", CAUSE_FIX_GIL);
	return true;
}

/* What keeps a thread from accepting connections, by cause of explain/asleep.sql, with the remedy.
 */
static const struct asleep {
	const char *cause, *said, *fix;
} asleep_causes[] = {
	{ "net", "waited for the network",
	  "where it waits for a client's next bytes: a proxy in front that takes whole requests "
	  "(nginx buffers them), no keep-alive, or more workers or threads" },
	{ "lock", "waited for a lock", "" },
	{ "sleep", "slept", "" },
	{ "disk", "waited for the disk", "" },
	{ "page_fault", "waited for memory (page faults)", "" },
	{ "pipe", "waited for a pipe", "" },
	{ "child", "waited for a child process", "" },
	{ "poll", "waited for several descriptors", "" },
	{ "preempt", "was ready to run, and no CPU was free",
	  "a larger instance, or less other work on this host" },
	{ "stopped", "was stopped by a signal or a debugger", CAUSE_FIX_STOPPED },
	{ "frozen", "was stopped by the freezer of its cgroup", CAUSE_FIX_FROZEN },
};

/* Not a call of its code. */
static bool is_from_outside(const struct asleep *of)
{
	return !strcmp(of->cause, "preempt") || !strcmp(of->cause, "stopped") ||
	       !strcmp(of->cause, "frozen");
}

/*
 * Reports that the thread that accepts was asleep for half of [from, to) or more: in one wait, as
 * others may have another cause or code.
 */
static bool kept_asleep(const json_t *r, struct cause *c, int64_t from_us, int64_t to_us,
			const char *what)
{
	double all_ms, ms;
	const json_t *sleep = longest_of(json_object_get(r, "asleep"), from_us, to_us, &all_ms);
	const char *place = explain_text(sleep, "place");
	const struct asleep *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(asleep_causes); i++) {
		if (strcmp(explain_text(sleep, "cause"), asleep_causes[i].cause) == 0)
			found = &asleep_causes[i];
	}
	ms = sleep ? (double)explain_overlap_us(sleep, from_us, to_us) / 1000 : 0;
	if (ms * 2 < c->ms || !found)
		return false;
	SAY(c, "%s: thread %.60s, which accepts connections, %s%s%.200s, %.1f ms of that", what,
	    thread_label(sleep, "tid", "thread_name").text, found->said, *place ? ", in " : "",
	    place, ms);
	/* the thread that handed the request to a pool's is an event loop */
	if (!strcmp(explain_text(r, "link"), "wake") && !is_from_outside(found))
		cause_fix_blocked_loop(r, c, "from_us", "handled_us", NULL);
	else
		FIX(c, "%s", found->fix);
	return true;
}

/* A wait before a request was read, and the names of its causes. */
struct kept {
	int64_t from_us, to_us;
	const char *what, *missing, *unknown;
};

/* Adds the requests that had most of the threads' time meanwhile, by `of` of meanwhile.sql. */
static void say_busy_with(const json_t *r, struct cause *c, const char *of)
{
	const json_t *row, *most = NULL;
	size_t i, used = strlen(c->said);

	json_array_foreach (json_object_get(r, "meanwhile"), i, row) {
		if (explain_ms(row, of) > (most ? explain_ms(most, of) : 0))
			most = row;
	}
	if (most)
		snprintf(c->said + used, sizeof(c->said) - used,
			 ", longest with %.20s %.160s (%lld request%s, %.1f ms)",
			 explain_text(most, "method"), explain_text(most, "path"),
			 (long long)explain_number(most, "requests"),
			 plural(explain_number(most, "requests")), explain_ms(most, of));
}

/*
 * Had other requests all threads during the wait [from, to), by `busy`: a row of threads.sql? Or
 * was the thread that accepts asleep? Says which. Returns the cause's name: `missing` of the
 * threads, or `unknown`.
 */
static const char *kept_by_requests(const json_t *r, const json_t *busy, struct cause *c,
				    const struct kept *kept)
{
	const char *what = kept->what;
	long long threads = explain_number(busy, "threads");
	double percent = json_number_value(json_object_get(busy, "busy_share")) * 100;
	char whose[96] = "the only thread that serves requests in its process was";

	percent = percent > 100 ? 100 : percent; /* weights of sampled requests estimate */
	if (threads > 1)
		snprintf(whose, sizeof(whose),
			 "%s%lld threads that serve requests in its process were",
			 explain_number(busy, "all_busy") ? "all " : "the ", threads);
	if (explain_number(busy, "all_busy")) {
		SAY(c, "%s: %s busy with other requests (%.0f %% of that time)", what, whose,
		    percent);
		say_busy_with(r, c, "held_ms");
		FIX(c,
		    "more threads or workers (gunicorn --threads, --workers), or shorter "
		    "requests on %s",
		    threads > 1 ? "these threads" : "that thread");
		return kept->missing;
	}
	if (kept_asleep(r, c, kept->from_us, kept->to_us, what))
		return "thread_asleep";
	if (explain_number(busy, "per_connection"))
		SAY(c,
		    "%s; each thread of its process served one connection only, so no thread was "
		    "missing: the cause is not known",
		    what);
	else if (threads && explain_has(busy, "busy_share"))
		SAY(c,
		    "%s, although %s busy with other requests only %.0f %% of that time: the "
		    "cause is not known",
		    what, whose, percent);
	else
		SAY(c, "%s: the cause is not known", what);
	return kept->unknown;
}

/* Adds a quota that made the requests longer that had all threads. */
static void add_quota_of_requests(const json_t *r, const json_t *busy, struct cause *c,
				  int64_t from_us, int64_t to_us)
{
	struct quota quota = cause_quota_in(r, from_us, to_us);

	if (!explain_number(busy, "all_busy") || !cause_is_quota(&quota, c->ms))
		return;
	cause_add_quota(c, "; ", &quota);
	snprintf(c->fix + strlen(c->fix), sizeof(c->fix) - strlen(c->fix),
		 "; if those compute, a higher CPU limit first");
}

void cause_queue(const json_t *r, struct cause *c)
{
	static const char waited[] = "the request had arrived, and no thread read it",
			  unread[] = "the request had arrived, and the event loop did not read it";
	const json_t *busy = json_object_get(r, "queue_threads");
	int64_t read = explain_number(r, "handled_us") -
		       (int64_t)(explain_ms(r, "pool_wait_ms") * 1000),
		since = read - (int64_t)(c->ms * 1000);

	if (explain_is_loop(r)) {
		if (loop_kept_stopped(r, c, since, read, unread))
			return;
		c->name = "loop_blocked";
		SAY(c, "%s", unread);
		cause_fix_blocked_loop(r, c, "from_us", "handled_us", NULL);
	} else if (!kept_by_quota_alone(r, busy, c, since, read, waited) &&
		   !kept_by_gil(r, c, since, read, waited)) {
		c->name = kept_by_requests(
			r, busy, c,
			&(struct kept){ since, read, waited, "threads_missing", "queue" });
		add_quota_of_requests(r, busy, c, since, read);
	}
}

void cause_accept_queue(const json_t *r, struct cause *c)
{
	static const char waited[] = "the connection waited in the listener's accept queue";
	const json_t *busy = json_object_get(r, "accept_threads");
	int64_t from = explain_number(r, "from_us"), to = from + (int64_t)(c->ms * 1000);

	if (explain_is_loop(r)) {
		if (loop_kept_stopped(r, c, from, to, waited))
			return;
		SAY(c, "%s: the event loop did not accept it", waited);
		c->name = cause_fix_blocked_loop(r, c, "from_us", "handled_us", NULL)
				  ? "loop_blocked"
				  : "workers_missing";
	} else if (!kept_by_quota_alone(r, busy, c, from, to, waited) &&
		   !kept_by_gil(r, c, from, to, waited)) {
		c->name = kept_by_requests(
			r, busy, c,
			&(struct kept){ from, to, waited, "workers_missing", "accept_queue" });
		if (strcmp(c->name, "workers_missing") == 0 && explain_number(r, "threads") == 1)
			FIX(c, "more workers: a process that serves one request at a time accepts "
			       "only between requests; or shorter requests");
		add_quota_of_requests(r, busy, c, from, to);
	}
}

void cause_pool_wait(const json_t *r, struct cause *c)
{
	c->name = "pool_missing";
	SAY(c, "the request was read, but no thread of the server's pool was free");
	say_busy_with(r, c, "pool_ms");
	FIX(c, "a larger pool (waitress --threads, anyio's limit of 40 threads), or shorter "
	       "requests in the pool");
}

void cause_fix_late_client(const json_t *r, struct cause *c)
{
	static const struct client_fix fix = {
		.doing = "sending",
		.or_else = "",
		.in_front = "takes whole requests (nginx buffers them)",
		.of_proxy = "let it send whole requests (nginx: proxy_request_buffering)",
	};

	connections_fix_client(r, c, &fix);
}

void cause_client_wait(const json_t *r, struct cause *c)
{
	c->name = "client_late";
	SAY(c, "the client had connected, but had not sent the request");
	cause_fix_late_client(r, c);
}

json_t *cause_before_request(const json_t *r)
{
	const json_t *row = json_array_get(json_object_get(r, "dropped"), 0);
	long long drops = explain_number(row, "drops"), full = explain_number(row, "overflows");
	struct cause c = { .name = "" };

	if (drops <= 0)
		return NULL;
	SAY(&c,
	    "in the ten seconds before it arrived, the listener of port %lld dropped %lld "
	    "handshake%s, %lld as its accept queue was full: a client tries again after 1, 3 and "
	    "7 s, and no part has that time",
	    (long long)explain_number(r, "server_port"), drops, plural(drops), full);
	FIX(&c, "%s",
	    full ? "more workers or threads that accept, or a longer queue (gunicorn --backlog, "
		   "uvicorn --backlog; net.core.somaxconn limits it)"
		 : "");
	return json_pack("{s:I, s:I, s:s, s:s}", "drops", (json_int_t)drops, "overflows",
			 (json_int_t)full, "said", c.said, "fix", c.fix);
}
